"""How an asset of one dataset is declared and what its materialisation says; the Dagster side of `workspace`.

Every asset and check of the dataset graph is built here, so that keys, versions, dependencies and partitions
come from one place, the `Artifact`.
"""

import base64
import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from PIL import Image

from agml_assets.errors import UserError
from agml_assets.faults import RETRY_DELAYS_S, is_transient, retry_delay
from agml_assets.heavy import Made
from agml_assets.lineage import Artifact
from agml_assets.progress import Progress
from agml_assets.store import Sidecar
from agml_assets.workspace import DatasetWorkspace, Making, Workspace, making

logger = logging.getLogger(__name__)

OWNERS = ["team:agml"]
# What Markdown or HTML takes for more than text, as entities, which are none; what no line can hold, as a mark.
_AS_TEXT = (
    {ord(sign): f"&#{ord(sign)};" for sign in "&<>|[]`\\*~"}
    | dict.fromkeys(
        (*range(32), 0x7F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
        "\N{REPLACEMENT CHARACTER}",
    )
    | {ord("\n"): " "}
)
_PREVIEW_BYTES = 45_000  # 60 kB once in base64


def asset_key(artifact: Artifact) -> dg.AssetKey:
    """Return the asset key of an artifact."""
    return dg.AssetKey(artifact.key.split("/"))


def asset_spec(
    artifact: Artifact,
    description: str,
    datasets: dg.PartitionsDefinition,
    *,
    kind: str,
    deps: Iterable[str] = (),
    skippable: bool = False,
) -> dg.AssetSpec:
    """Return the spec of a dataset artifact; `deps` are added to the artifact's own inputs."""
    return dg.AssetSpec(
        key=asset_key(artifact),
        deps=[dg.AssetKey(key.split("/")) for key in (*artifact.inputs, *deps)],
        description=description,
        partitions_def=datasets,
        group_name=artifact.key.rpartition("/")[0] or "report",
        code_version=artifact.code_version,
        kinds={kind},
        owners=OWNERS,
        skippable=skippable,
    )


def dataset_asset(
    artifact: Artifact,
    description: str,
    datasets: dg.PartitionsDefinition,
    *,
    kind: str,
    checks: Sequence[dg.AssetCheckSpec] = (),
    deps: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return the decorator of the asset that makes one artifact."""
    spec = asset_spec(artifact, description, datasets, kind=kind, deps=deps)
    return dg.asset(
        key=spec.key,
        deps=list(spec.deps),
        description=spec.description,
        partitions_def=datasets,
        group_name=spec.group_name,
        code_version=spec.code_version,
        kinds=spec.kinds,
        owners=OWNERS,
        check_specs=checks,
    )


def check_spec(
    artifact: Artifact,
    name: str,
    description: str,
    datasets: dg.PartitionsDefinition,
    *,
    blocking: bool = False,
) -> dg.AssetCheckSpec:
    """Return the spec of a check on a dataset artifact; a blocking one stops what would use a false number."""
    with warnings.catch_warnings():
        # Partitioned checks are a preview in the pinned Dagster; every one of ours is made here.
        warnings.filterwarnings("ignore", message="Specifying a partitions_def on an AssetCheckSpec")
        return dg.AssetCheckSpec(
            name,
            asset=asset_key(artifact),
            description=description,
            blocking=blocking,
            partitions_def=datasets,
        )


def check(
    artifact: Artifact, name: str, *, passed: bool, error: bool = False, description: str = "", **facts: Any
) -> dg.AssetCheckResult:
    """Return a check's result, ERROR or WARN, with what was expected and what was seen.

    The description of a blocking check is what the user is told when it stops a run.
    """
    return dg.AssetCheckResult(
        asset_key=asset_key(artifact),
        check_name=name,
        passed=passed,
        severity=dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN,
        description=description or None,
        metadata=facts,
    )


@dataclass
class Step:
    """An asset at work on one dataset: what it reads, and the materialisation it reports."""

    context: dg.AssetExecutionContext
    dataset: DatasetWorkspace
    making: Making
    checks: list[dg.AssetCheckResult] = field(default_factory=list)

    def read(self, upstream: Artifact) -> Any:
        """Read one of the artifact's declared inputs."""
        return self.making.read(upstream)

    def progress(self, what: str) -> Progress:
        """Return a progress reporter that writes to the run's log."""
        return Progress(what, self.say)

    def say(self, line: str) -> None:
        """Write a line to the run's log: Dagster's for its UI, the module's for the command line."""
        self.context.log.info(line)
        logger.info(line)

    def done(
        self, value: Any, metadata: Mapping[str, Any], *, info: Mapping[str, Any] | None = None, **extra: Any
    ) -> dg.MaterializeResult:
        """Store the value and return the materialisation with its metadata and checks."""
        return self._recorded(self.making.write(value, info=info, **extra), metadata)

    def record(self, made: Made) -> dg.MaterializeResult:
        """Store what a heavy step has made, where it is not stored yet, and return the materialisation."""
        if made.sidecar is None:
            return self.done(made.value, made.facts, info=made.info)
        return self._recorded(made.sidecar, made.facts)

    def _recorded(self, sidecar: Sidecar, metadata: Mapping[str, Any]) -> dg.MaterializeResult:
        artifact = self.making.artifact
        if stop := self._failed_blocking_check():
            # Outside Dagster too, nothing may count as current that a blocking check has refused.
            self.dataset.store.record_failure(
                self.dataset.key,
                artifact.file,
                error=f"The check {stop.check_name} failed. {stop.description or ''}".strip(),
                run_id=self.context.run.run_id,
            )
        return dg.MaterializeResult(
            asset_key=asset_key(artifact),
            metadata={**metadata, **_facts(sidecar, self.dataset, artifact)},
            data_version=dg.DataVersion(sidecar.digest),
            check_results=self.checks,
        )

    def _failed_blocking_check(self) -> dg.AssetCheckResult | None:
        blocking = {spec.name for spec in self.context.assets_def.check_specs if spec.blocking}
        error = dg.AssetCheckSeverity.ERROR
        refused = (c for c in self.checks if not c.passed and c.severity == error)
        return next((c for c in refused if c.check_name in blocking), None)


@contextmanager
def step(context: dg.AssetExecutionContext, workspace: Workspace, artifact: Artifact) -> Iterator[Step]:
    """Make one artifact of the run's dataset.

    A fault that passes by itself (`faults.is_transient`) is tried again, later and later, a few times; a
    user's mistake fails the step for good.
    """
    dataset = dataset_of(context, workspace)
    verdict: dg.Failure | dg.RetryRequested | None = None
    try:
        with making(dataset, artifact, context.run.run_id) as work:
            try:
                yield Step(context, dataset, work)
            except (dg.Failure, dg.RetryRequested) as judged:
                # By a step inside this one, of an asset that makes several artifacts: all fail of the same cause.
                verdict = judged
                raise (judged.__context__ or judged) from None
    except Exception as error:
        verdict = verdict or _judge(error, context, dataset)
        if verdict is None:
            raise
        raise verdict from None


def _judge(
    error: Exception, context: dg.AssetExecutionContext, dataset: DatasetWorkspace
) -> dg.Failure | dg.RetryRequested | None:
    """Return what tells Dagster to try a step again or to fail it in words; None where a stack says more."""
    passing = is_transient(error)
    if not passing and not isinstance(error, UserError):
        return None
    message = _named(dataset, error)
    if not passing:
        return dg.Failure(message, allow_retries=False)
    retry, retries = context.retry_number, len(RETRY_DELAYS_S)
    if retry >= retries:
        return dg.Failure(f"{message}\nTried {retry + 1} times. Run it again later.", allow_retries=False)
    wait = retry_delay(retry)
    name = context.op_execution_context.op.name
    line = f"Try {retry + 1} of {retries + 1} of {name} failed, again in {wait:.0f} s. {message}"
    context.log.warning(line)
    logger.warning(line)
    return dg.RetryRequested(max_retries=retries, seconds_to_wait=wait)


def dataset_of(context: dg.AssetExecutionContext, workspace: Workspace) -> DatasetWorkspace:
    """Return the workspace of the run's dataset; a dataset that is not registered is a permanent failure."""
    if not context.has_partition_key:
        raise dg.Failure(
            "Name the dataset: a partition in the UI, --partition KEY, or for `dagster job execute` "
            """--tags '{"dagster/partition": "KEY"}'.""",
            allow_retries=False,
        )
    try:
        return workspace.dataset(context.partition_key)
    except UserError as error:
        raise dg.Failure(error.message, allow_retries=False) from None


@contextmanager
def named_failures(dataset: DatasetWorkspace) -> Iterator[None]:
    """Turn a `UserError` into a permanent Dagster failure that names the dataset."""
    try:
        yield
    except UserError as error:
        raise dg.Failure(_named(dataset, error), allow_retries=False) from None


def _named(dataset: DatasetWorkspace, error: Exception) -> str:
    message = error.message if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return message if repr(dataset.key) in message else f"Dataset {dataset.key!r}: {message}"


def _facts(sidecar: Sidecar, dataset: DatasetWorkspace, artifact: Artifact) -> dict[str, Any]:
    path = dataset.store.path(dataset.key, artifact.file)
    return {
        "path": dg.MetadataValue.path(str(path)),
        "size_mb": round(sidecar.bytes / 1e6, 3),
        "duration_s": sidecar.duration_s,
    }


def picture(image: Image.Image, text: str) -> dg.MetadataValue:
    """Return a picture for the Dagster UI, under 60 kB whatever the image is."""
    image = image.convert("RGB")
    for quality in (80, 60, 40, 20):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= _PREVIEW_BYTES:
            break
    data = base64.b64encode(buffer.getvalue()).decode()
    return dg.MetadataValue.md(f"![{text}](data:image/jpeg;base64,{data})")


def table(headings: tuple[str, ...], rows: Iterable[tuple[Any, ...]], limit: int = 30) -> dg.MetadataValue:
    """Return a Markdown table for the Dagster UI; of more than `limit` rows it says how many are left out."""
    rows = list(rows)
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows[:limit]]
    if len(rows) > limit:
        lines.append(f"\n{len(rows) - limit} more rows are in the file.")
    return dg.MetadataValue.md("\n".join(lines))


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = text if len(text) <= 120 else text[:117] + "..."
    return text.translate(_AS_TEXT)
