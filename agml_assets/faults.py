"""Which errors pass by themselves, and so are worth another try: the network, a busy file, a locked database.

The one place that decides it. Classes of other libraries are told by their names, so that none is imported here.
What to do with the answer is `recording`'s business.
"""

import errno
import random
import socket
from collections.abc import Iterator

RETRY_DELAYS_S = (3.0, 10.0, 30.0)
"""Seconds before the second, third and fourth try."""

_JITTER = 0.25  # so that runs that failed together do not come back together

_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})  # RFC 9110, RFC 6585, RFC 8470

_PASSING_ERRNO = frozenset(
    {
        errno.EAGAIN,
        errno.ESTALE,  # a file server came back with other handles
        errno.ETIMEDOUT,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ENETRESET,
    }
)
# Nobody listens, or there is no network: the user wants to hear of that now. A broken pipe led to a process of
# our own that was killed, and would be again.
_LASTING_ERRNO = frozenset(
    {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EPIPE}
)

_PASSING = frozenset(
    {
        "requests.Timeout",
        "requests.ChunkedEncodingError",
        "urllib3.ProtocolError",
        "urllib3.ReadTimeoutError",
        "http.IncompleteRead",
        "httpx.TimeoutException",
        "httpx.ReadError",
        "httpx.WriteError",
        "httpx.RemoteProtocolError",
        "aiohttp.ServerDisconnectedError",
        "aiohttp.ClientPayloadError",
        "botocore.ConnectionClosedError",
        "botocore.ConnectTimeoutError",
        "botocore.ReadTimeoutError",
    }
)
# A connection that was not made, for whatever reason: the errors that it came from may know better.
_PERHAPS_PASSING = frozenset(
    {
        "builtins.ConnectionError",
        "requests.ConnectionError",
        "httpx.NetworkError",
        "httpx.ProxyError",
        "botocore.EndpointConnectionError",
    }
)
_LASTING = frozenset({"huggingface_hub.OfflineModeIsEnabled"})

_OFFLINE = "(OfflineModeIsEnabled)"  # so `datasets` ends the words of a ConnectionError, without keeping its cause

_LOCKED = ("database is locked", "database table is locked")  # SQLite's words


def is_transient(error: BaseException) -> bool:
    """Return whether the same work may succeed when it is tried again, with nothing changed.

    The error and those that it came from are asked in turn, also where a `UserError` puts one into words; the
    first that knows decides. What nobody knows is taken for lasting: wrong data, a full disk, a bug.
    A GPU without memory is lasting too, as it has been answered by smaller batches before.
    """
    perhaps = False
    for link in _chain(error):
        verdict = _judge(link)
        if verdict is not None:
            return verdict
        perhaps = perhaps or bool(_names(link) & _PERHAPS_PASSING)
    return perhaps


def retry_delay(attempt: int) -> float:
    """Return the seconds to wait after failed try `attempt`, counted from 0, give or take a quarter."""
    return RETRY_DELAYS_S[attempt] * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it came from, also where a stack trace would hide them."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _judge(link: BaseException) -> bool | None:
    """Return whether one error by itself passes; None where it does not say."""
    names = _names(link)
    if names & _LASTING or (isinstance(link, ConnectionError) and str(link).endswith(_OFFLINE)):
        return False
    if (status := _status(link)) is not None:
        return status in _PASSING_STATUS
    if names & _PASSING or isinstance(link, TimeoutError):
        return True
    if isinstance(link, socket.gaierror):
        return link.errno == socket.EAI_AGAIN
    if isinstance(link, OSError) and link.errno in _PASSING_ERRNO | _LASTING_ERRNO:
        return link.errno in _PASSING_ERRNO
    if isinstance(link, ConnectionRefusedError | BrokenPipeError):
        return False
    if isinstance(link, ConnectionResetError | ConnectionAbortedError):
        return True
    if any(name.endswith(".OperationalError") for name in names):
        return any(words in str(link) for words in _LOCKED) or None
    return None


def _names(error: BaseException) -> set[str]:
    """Return `package.Class` of an error and its base classes; httpx goes by one name in all its editions."""
    names = set()
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        names.add(f"{'httpx' if package.startswith('httpx') else package}.{kind.__name__}")
    return names


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error carries, as `requests`, `httpx`, `aiohttp` or `botocore` keep it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(response, "status_code", None)
        if status is None:
            status = getattr(error, "status", None) or getattr(error, "code", None)  # aiohttp, urllib
    return status if type(status) is int and 400 <= status < 600 else None
