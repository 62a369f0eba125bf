#!/usr/bin/env bash
# A throw-away Slurm cluster of this one machine, with accounting and an SSH server, for the tests beside it.
#
#   cluster.sh install     the Debian packages it is made of
#   cluster.sh start       everything, in the order of dependence; prints the folder with the SSH keys
#   cluster.sh stop        what `start` started, by process number, in the opposite order
#
# Needs root and no systemd, no cgroups. A Slurm configuration that is not its own is left alone.
set -euo pipefail

place=/run/agml-test-slurm
mark="# written by the tests of AgML Assets"
node=$(hostname -s)
packages=(slurmctld slurmd slurm-client slurmdbd mariadb-server munge openssh-server openssh-client)
daemons=(sshd slurmd slurmctld slurmdbd mariadbd munged)

patiently() { # SECONDS COMMAND...: until it succeeds
  local tries=$(($1 * 4)); shift
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || { echo "gave up waiting for: $*" >&2; return 1; }
    sleep 0.25
  done
}

alive() { [ -s "$place/$1.pid" ] && kill -0 "$(cat "$place/$1.pid")" 2>/dev/null; }

stop_one() {
  alive "$1" || return 0
  kill "$(cat "$place/$1.pid")"
  for _ in $(seq 60); do alive "$1" || return 0; sleep 0.25; done
  kill -9 "$(cat "$place/$1.pid")"
}

configure() {
  local memory
  memory=$(($(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo) * 9 / 10))
  install -d -m 755 "$place" /etc/slurm "$place/ctld" "$place/d"
  install -d -o munge -g munge -m 755 "$place/munge" /run/munge
  install -d -o mysql -g mysql -m 755 "$place/db"
  for file in slurm.conf slurmdbd.conf; do
    if [ -e "/etc/slurm/$file" ] && ! grep -qF "$mark" "/etc/slurm/$file"; then
      echo "/etc/slurm/$file is another cluster's: not touched" >&2
      exit 1
    fi
  done
  install -m 600 /dev/stdin /etc/slurm/slurmdbd.conf <<CONF
$mark
AuthType=auth/munge
DbdAddr=127.0.0.1
DbdHost=$node
LogFile=$place/slurmdbd.log
PidFile=$place/slurmdbd.pid
SlurmUser=root
StorageHost=localhost
StorageLoc=agml_test_slurm
StorageType=accounting_storage/mysql
StorageUser=root
CONF
  install -m 644 /dev/stdin /etc/slurm/slurm.conf <<CONF
$mark
ClusterName=agml-test
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AccountingStorageHost=127.0.0.1
AccountingStorageType=accounting_storage/slurmdbd
JobAcctGatherFrequency=2
JobAcctGatherParams=OverMemoryKill
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=512
KillWait=5
InactiveLimit=0
SlurmctldLogFile=$place/slurmctld.log
SlurmctldPidFile=$place/slurmctld.pid
SlurmdLogFile=$place/slurmd.log
SlurmdPidFile=$place/slurmd.pid
SlurmdSpoolDir=$place/d
StateSaveLocation=$place/ctld
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory State=UNKNOWN
PartitionName=debug Nodes=$node Default=YES MaxTime=04:00:00 State=UP
CONF
}

start_ssh() {
  install -d -m 755 /run/sshd
  install -d -m 700 "$place/ssh"
  [ -s "$place/ssh/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$place/ssh/host"
  [ -s "$place/ssh/user" ] || ssh-keygen -q -t ed25519 -N '' -f "$place/ssh/user"
  install -m 600 "$place/ssh/user.pub" "$place/ssh/authorized_keys"
  printf '[127.0.0.1]:2222 %s\n' "$(cut -d' ' -f1,2 "$place/ssh/host.pub")" >"$place/ssh/known_hosts"
  install -m 600 /dev/stdin "$place/ssh/config" <<CONF
AuthorizedKeysFile $place/ssh/authorized_keys
HostKey $place/ssh/host
KbdInteractiveAuthentication no
ListenAddress 127.0.0.1:2222
MaxSessions 50
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile $place/sshd.pid
StrictModes no
Subsystem sftp internal-sftp
UsePAM no
CONF
  alive sshd || "$(command -v sshd || echo /usr/sbin/sshd)" -f "$place/ssh/config"
}

start() {
  configure
  if [ ! -s "$place/munge/key" ]; then
    head -c 256 /dev/urandom | install -o munge -g munge -m 400 /dev/stdin "$place/munge/key"
  fi
  alive munged || setpriv --reuid=munge --regid=munge --clear-groups munged \
    --key-file="$place/munge/key" --pid-file="$place/munge/munged.pid" \
    --log-file="$place/munge/log" --seed-file="$place/munge/seed"
  patiently 10 test -s "$place/munge/munged.pid"
  ln -sf munge/munged.pid "$place/munged.pid"

  local database="$place/db/socket"
  if ! alive mariadbd; then
    [ -d "$place/db/data" ] || mariadb-install-db --user=mysql --datadir="$place/db/data" --skip-test-db >/dev/null
    nohup setsid mariadbd --no-defaults --user=mysql --datadir="$place/db/data" --socket="$database" \
      --skip-networking --pid-file="$place/db/pid" >"$place/db/log" 2>&1 &
    ln -sf db/pid "$place/mariadbd.pid"
  fi
  patiently 30 mariadb --socket="$database" -e 'SELECT 1'

  # slurmdbd looks for the socket where Debian puts it.
  install -d -o mysql -g mysql -m 755 /run/mysqld
  ln -sf "$database" /run/mysqld/mysqld.sock
  alive slurmdbd || slurmdbd
  patiently 30 sacctmgr -n -P list cluster
  sacctmgr -n -P list cluster | grep -q '^agml-test|' || sacctmgr -i -Q add cluster agml-test >/dev/null
  alive slurmctld || slurmctld -c
  alive slurmd || slurmd
  patiently 30 bash -c "sinfo -h -o %T | grep -qE 'idle|mixed|allocated'"
  start_ssh
  echo "$place/ssh"
}

stop() {
  for daemon in "${daemons[@]}"; do stop_one "$daemon"; done
  rm -f /run/mysqld/mysqld.sock
  for file in slurm.conf slurmdbd.conf; do
    if grep -qsF "$mark" "/etc/slurm/$file"; then rm -f "/etc/slurm/$file"; fi
  done
  rm -rf "$place"
}

case "${1:-}" in
  install)
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
    ;;
  start) start ;;
  stop) stop ;;
  *)
    sed -n '2,9p' "$0" >&2
    exit 2
    ;;
esac
