"""Loops over pixels that Numba compiles: Pillow's bicubic resize to a square, and MD5 of sixteen images at once.

Both give the very bytes of Pillow and hashlib, in a fraction of the time. Importing this module takes half a
second, and some seconds of compiling where Numba finds no cache; only processes that decode large images do it.
"""

import hashlib
from collections.abc import Sequence
from io import BytesIO

import numba
import numpy as np
from jaxtyping import Int32, Int64, UInt8
from numba import types
from PIL import Image

from agml_assets.dataset.decode import SIDE, decode_plain_jpeg, resized_size, to_square_256

MAX_ASPECT = 2
LANES = 16  # messages hashed side by side: two AVX2 registers of 32-bit words
_WORTH_LANES = 6  # sixteen lanes take about as long as hashlib takes for four messages

# Pillow's fixed point: what 32 bits leave beside the 8 bits of a pixel and 2 for overshoot (its Resample.c).
_FRACTION_BITS = 22
_SUPPORT, _A = 2.0, -0.5  # Keys' cubic convolution with a = -1/2, as in Pillow

_BLOCK = 64  # bytes that MD5 takes at a time
_RUN = 16  # blocks of every lane that are brought together at once; they fit in the fastest cache
_SINES = np.floor(np.abs(np.sin(np.arange(1, 65))) * 2**32).astype(np.uint32)  # RFC 1321, section 3.4
_WORDS_OF_BLOCK, _LANES = np.uint64(16), np.uint64(LANES)
_WORDS_OF_RUN = _WORDS_OF_BLOCK * _LANES
_START = np.array([[0x67452301], [0xEFCDAB89], [0x98BADCFE], [0x10325476]], np.uint32)  # section 3.3


def agree_with_pillow_and_hashlib() -> bool:
    """Tell whether the faster ways of large images give what they stand for, here and now, on made-up pixels."""
    rng = np.random.default_rng(0)
    for height, width in ((300, 300 * MAX_ASPECT), (613, 811), (300 * MAX_ASPECT, 300)):
        pixels = rng.integers(0, 2, size=(height, width, 3), dtype=np.uint8) * 255  # hard edges overshoot most
        image = Image.fromarray(pixels)
        if not np.array_equal(square_256(pixels), to_square_256(image)):
            return False
        for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
            stream = BytesIO()
            image.save(stream, "JPEG", subsampling=subsampling)
            jpeg = decode_plain_jpeg(stream.getvalue(), pixels.size)
            if jpeg is None or not np.array_equal(jpeg.rgb, np.asarray(Image.open(stream))):
                return False
    messages = [pixels[row].reshape(-1)[: 700 + 7 * row] for row in range(LANES)]
    return md5_of_each(messages) == [hashlib.md5(m.data, usedforsecurity=False).hexdigest() for m in messages]


def square_256(pixels: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "256 256 3"]:
    """Return, to the bit, what `to_square_256` makes of an RGB image.

    Pillow resizes along the rows, rounds to 8 bits, then along the columns. So does this, but only for what the
    centre crop keeps. Images longer than `MAX_ASPECT` times their width are not for here: some versions of Pillow
    begin with the columns there.
    """
    height, width = pixels.shape[:2]
    new_width, new_height = resized_size(width, height)
    first_column, column_weights = _bicubic(width, new_width)
    first_row, row_weights = _bicubic(height, new_height)
    top, bottom = int(first_row[0]), int(first_row[-1]) + row_weights.shape[1]
    left = int(first_column[0])
    narrow = np.empty((-(-(bottom - top) // _STRIP) * _STRIP, SIDE * 3), np.uint8)
    _narrow(pixels[top:bottom], left, first_column - left, column_weights, narrow)
    square = np.empty((SIDE, SIDE, 3), np.uint8)
    _weigh_lines(narrow, first_row - top, row_weights, square.reshape(SIDE, -1))
    return square


def md5_of_each(messages: Sequence[UInt8[np.ndarray, " bytes"]]) -> list[str]:
    """Return the hexadecimal MD5 of every message, sixteen side by side where there are enough of them."""
    found: list[str] = []
    for start in range(0, len(messages), LANES):
        some = messages[start : start + LANES]
        if len(some) < _WORTH_LANES:
            found += [hashlib.md5(message.data, usedforsecurity=False).hexdigest() for message in some]
        else:
            found += _md5_side_by_side(some)
    return found


def _bicubic(length: int, new_length: int) -> tuple[Int64[np.ndarray, " 256"], Int32[np.ndarray, "256 k"]]:
    """Return of each of the centre 256 new pixels its first old pixel, and the weights from there on, times 2**22.

    All windows are as wide as the widest and lie within the image; weights beyond a pixel's own window are 0.
    """
    scale = length / new_length
    stretch = max(scale, 1.0)
    centres = (np.arange((new_length - SIDE) // 2, (new_length - SIDE) // 2 + SIDE) + 0.5) * scale
    first = np.maximum((centres - _SUPPORT * stretch + 0.5).astype(np.int64), 0)
    end = np.minimum((centres + _SUPPORT * stretch + 0.5).astype(np.int64), length)
    widest = (end - first).max()
    places = np.arange(widest + widest % 2)
    x = np.abs((places + first[:, None] - centres[:, None] + 0.5) * (1.0 / stretch))
    near = ((_A + 2) * x - (_A + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * _A
    weights = np.where(x < 1, near, np.where(x < _SUPPORT, far, 0.0))
    weights[places >= (end - first)[:, None]] = 0.0
    total = np.zeros(SIDE)
    for place in places:  # in Pillow's order, as the last bit depends on it
        total += weights[:, place]
    fixed = weights / total[:, None] * (1 << _FRACTION_BITS)
    rounded = np.trunc(fixed + np.copysign(0.5, fixed)).astype(np.int32)
    too_far = np.maximum(first + len(places) - length, 0)
    for pixel in np.flatnonzero(too_far):
        rounded[pixel] = np.roll(rounded[pixel], too_far[pixel])
    return first - too_far, rounded


_BYTES = types.Array(types.uint8, 2, "C", readonly=True)
_PIXELS = types.Array(types.uint8, 3, "C", readonly=True)
_WORD = 8  # bytes
_STRIP = 64  # rows that are turned at once; their pixels stay in a core's own cache
_HALF, _QUARTER, _EIGHTH = (
    np.uint64(0x00000000FFFFFFFF),
    np.uint64(0x0000FFFF0000FFFF),
    np.uint64(0x00FF00FF00FF00FF),
)


@numba.njit(inline="always")
def _exchange(a, b, bits, low):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Exchange the high part of every group of bits in `a` with the low part in `b`."""
    change = ((a >> np.uint64(bits)) ^ b) & low
    return a ^ (change << np.uint64(bits)), b ^ change


@numba.njit(types.void(types.uint64[:, ::1], types.uint64[:, ::1]), cache=True, nogil=True)
def _transpose(lines, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Write the transpose of a matrix of bytes; both are given as words of eight.

    Eight words are a square of eight by eight bytes: two of its quarters are exchanged, then two quarters of each
    quarter, then theirs.
    """
    for x in range(lines.shape[1]):
        for y in range(out.shape[1]):
            a, b, c, d = lines[8 * y, x], lines[8 * y + 1, x], lines[8 * y + 2, x], lines[8 * y + 3, x]
            e, f, g, h = lines[8 * y + 4, x], lines[8 * y + 5, x], lines[8 * y + 6, x], lines[8 * y + 7, x]
            a, e = _exchange(a, e, 32, _HALF)
            b, f = _exchange(b, f, 32, _HALF)
            c, g = _exchange(c, g, 32, _HALF)
            d, h = _exchange(d, h, 32, _HALF)
            a, c = _exchange(a, c, 16, _QUARTER)
            b, d = _exchange(b, d, 16, _QUARTER)
            e, g = _exchange(e, g, 16, _QUARTER)
            f, h = _exchange(f, h, 16, _QUARTER)
            a, b = _exchange(a, b, 8, _EIGHTH)
            c, d = _exchange(c, d, 8, _EIGHTH)
            e, f = _exchange(e, f, 8, _EIGHTH)
            g, h = _exchange(g, h, 8, _EIGHTH)
            out[8 * x, y], out[8 * x + 1, y], out[8 * x + 2, y], out[8 * x + 3, y] = a, b, c, d
            out[8 * x + 4, y], out[8 * x + 5, y], out[8 * x + 6, y], out[8 * x + 7, y] = e, f, g, h


@numba.njit(types.void(_BYTES, types.int64[::1], types.int32[:, ::1], types.uint8[:, ::1]), cache=True, nogil=True)
def _weigh_lines(lines, first, weights, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Write to line i of `out` the sum of weights[i, j] * lines[first[i] + j], rounded and clipped to 0..255."""
    length = lines.shape[1]
    total = np.empty(length, np.int32)
    for i in range(len(first)):
        total[:] = 1 << (_FRACTION_BITS - 1)
        for j in range(0, weights.shape[1], 2):  # in pairs, to read and write the totals half as often
            w, v, line, next_line = weights[i, j], weights[i, j + 1], lines[first[i] + j], lines[first[i] + j + 1]
            for x in range(length):
                total[x] += np.int32(w * np.int32(line[x])) + np.int32(v * np.int32(next_line[x]))
        for x in range(length):
            out[i, x] = min(max(total[x] >> _FRACTION_BITS, 0), 255)


@numba.njit(
    types.void(_PIXELS, types.int64, types.int64[::1], types.int32[:, ::1], types.uint8[:, ::1]),
    cache=True,
    nogil=True,
)
def _narrow(pixels, left, first, weights, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Resize the rows of pixels, from column `left` on; the rows of `out` are filled up to whole strips.

    A strip is turned on its side, so that the sums run over whole lines, which the processor adds eight at a time.
    """
    columns = first[-1] + weights.shape[1]
    strip = np.zeros((_STRIP, -(-3 * columns // _WORD) * _WORD), np.uint8)
    turned = np.empty((strip.shape[1], _STRIP), np.uint8)
    lines = turned[: 3 * columns].reshape(columns, 3 * _STRIP)
    narrow = np.empty((SIDE, 3 * _STRIP), np.uint8)
    for top in range(0, len(pixels), _STRIP):
        for y in range(min(_STRIP, len(pixels) - top)):
            given, line = pixels[top + y, left : left + columns].reshape(3 * columns), strip[y]
            for x in range(3 * columns):
                line[x] = given[x]
        _transpose(strip.view(np.uint64), turned.view(np.uint64))
        _weigh_lines(lines, first, weights, narrow)
        _transpose(
            narrow.reshape(3 * SIDE, _STRIP).view(np.uint64),
            out[top : top + _STRIP].view(np.uint64),
        )


def _md5_side_by_side(messages: Sequence[UInt8[np.ndarray, " bytes"]]) -> list[str]:
    """Return the hexadecimal MD5 of at most `LANES` messages."""
    whole = np.zeros(LANES, np.int64)  # blocks that are the message's own
    blocks = np.zeros(LANES, np.int64)  # with the last, padded ones
    ends = np.zeros((LANES, 2, _BLOCK), np.uint8)
    words = [np.zeros(0, np.uint32)] * LANES
    for lane, message in enumerate(messages):
        whole[lane] = len(message) // _BLOCK
        words[lane] = message[: whole[lane] * _BLOCK].view(np.uint32)
        rest = message[whole[lane] * _BLOCK :].tobytes() + b"\x80"
        filled = -(-(len(rest) + 8) // _BLOCK) * _BLOCK
        padded = rest.ljust(filled - 8, b"\0") + (8 * len(message)).to_bytes(8, "little")
        ends[lane].reshape(-1)[:filled] = np.frombuffer(padded, np.uint8)
        blocks[lane] = whole[lane] + filled // _BLOCK
    state = np.repeat(_START, LANES, axis=1)
    _md5_blocks(tuple(words), whole, ends.view(np.uint32), blocks, state)
    return [state[:, lane].tobytes().hex() for lane in range(len(messages))]


@numba.njit(inline="always")
def _plus(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return np.uint32(x + y)  # Numba adds in 64 bits otherwise


@numba.njit(inline="always")
def _turn(x, bits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return np.uint32(np.uint32(x << np.uint32(bits)) | np.uint32(x >> np.uint32(32 - bits)))


_WORDS = types.Array(types.uint32, 1, "C", readonly=True)


@numba.njit(
    types.void(
        types.UniTuple(_WORDS, LANES),
        types.int64[::1],
        types.uint32[:, :, ::1],
        types.int64[::1],
        types.uint32[:, ::1],
    ),
    cache=True,
    nogil=True,
)
def _md5_blocks(words, whole, ends, blocks, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, C901
    """Bring the MD5 states of all lanes from the start to the end of their messages (RFC 1321, section 3.4).

    Four steps stand in one loop over the lanes: after four, each variable is back in its place, and the compiler
    turns the loop into steps on whole registers.
    """
    run = np.empty((_RUN, 16, LANES), np.uint32)
    line = run.reshape(run.size)
    v = state.copy()
    for first in range(0, blocks.max(), _RUN):
        for i in range(LANES):
            own, lane = words[i], np.uint64(i)
            for block in range(first, min(first + _RUN, whole[i])):
                # Unsigned, as a signed index is asked each time whether it counts from the end.
                taken, given = np.uint64(block - first) * _WORDS_OF_RUN + lane, np.uint64(block) * _WORDS_OF_BLOCK
                for w in range(_WORDS_OF_BLOCK):
                    line[taken + np.uint64(w) * _LANES] = own[given + np.uint64(w)]
            for block in range(max(first, whole[i]), min(first + _RUN, blocks[i])):
                for w in range(16):
                    run[block - first, w, i] = ends[i, block - whole[i], w]
        for block in range(first, min(first + _RUN, blocks.max())):
            m = run[block - first]
            for q in range(0, 16, 4):
                k0, k1, k2, k3 = _SINES[q], _SINES[q + 1], _SINES[q + 2], _SINES[q + 3]
                for i in range(LANES):
                    a, b, c, d = v[0, i], v[1, i], v[2, i], v[3, i]
                    a = _plus(b, _turn(_plus(_plus(d ^ (b & (c ^ d)), a), _plus(k0, m[q, i])), 7))
                    d = _plus(a, _turn(_plus(_plus(c ^ (a & (b ^ c)), d), _plus(k1, m[q + 1, i])), 12))
                    c = _plus(d, _turn(_plus(_plus(b ^ (d & (a ^ b)), c), _plus(k2, m[q + 2, i])), 17))
                    b = _plus(c, _turn(_plus(_plus(a ^ (c & (d ^ a)), b), _plus(k3, m[q + 3, i])), 22))
                    v[0, i], v[1, i], v[2, i], v[3, i] = a, b, c, d
            for q in range(0, 16, 4):
                k0, k1, k2, k3 = _SINES[q + 16], _SINES[q + 17], _SINES[q + 18], _SINES[q + 19]
                w0, w1, w2, w3 = (5 * q + 1) % 16, (5 * q + 6) % 16, (5 * q + 11) % 16, (5 * q + 16) % 16
                for i in range(LANES):
                    a, b, c, d = v[0, i], v[1, i], v[2, i], v[3, i]
                    a = _plus(b, _turn(_plus(_plus(c ^ (d & (b ^ c)), a), _plus(k0, m[w0, i])), 5))
                    d = _plus(a, _turn(_plus(_plus(b ^ (c & (a ^ b)), d), _plus(k1, m[w1, i])), 9))
                    c = _plus(d, _turn(_plus(_plus(a ^ (b & (d ^ a)), c), _plus(k2, m[w2, i])), 14))
                    b = _plus(c, _turn(_plus(_plus(d ^ (a & (c ^ d)), b), _plus(k3, m[w3, i])), 20))
                    v[0, i], v[1, i], v[2, i], v[3, i] = a, b, c, d
            for q in range(0, 16, 4):
                k0, k1, k2, k3 = _SINES[q + 32], _SINES[q + 33], _SINES[q + 34], _SINES[q + 35]
                w0, w1, w2, w3 = (3 * q + 5) % 16, (3 * q + 8) % 16, (3 * q + 11) % 16, (3 * q + 14) % 16
                for i in range(LANES):
                    a, b, c, d = v[0, i], v[1, i], v[2, i], v[3, i]
                    a = _plus(b, _turn(_plus(_plus(b ^ c ^ d, a), _plus(k0, m[w0, i])), 4))
                    d = _plus(a, _turn(_plus(_plus(a ^ b ^ c, d), _plus(k1, m[w1, i])), 11))
                    c = _plus(d, _turn(_plus(_plus(d ^ a ^ b, c), _plus(k2, m[w2, i])), 16))
                    b = _plus(c, _turn(_plus(_plus(c ^ d ^ a, b), _plus(k3, m[w3, i])), 23))
                    v[0, i], v[1, i], v[2, i], v[3, i] = a, b, c, d
            for q in range(0, 16, 4):
                k0, k1, k2, k3 = _SINES[q + 48], _SINES[q + 49], _SINES[q + 50], _SINES[q + 51]
                w0, w1, w2, w3 = (7 * q) % 16, (7 * q + 7) % 16, (7 * q + 14) % 16, (7 * q + 21) % 16
                for i in range(LANES):
                    a, b, c, d = v[0, i], v[1, i], v[2, i], v[3, i]
                    a = _plus(b, _turn(_plus(_plus(c ^ (b | ~d), a), _plus(k0, m[w0, i])), 6))
                    d = _plus(a, _turn(_plus(_plus(b ^ (a | ~c), d), _plus(k1, m[w1, i])), 10))
                    c = _plus(d, _turn(_plus(_plus(a ^ (d | ~b), c), _plus(k2, m[w2, i])), 15))
                    b = _plus(c, _turn(_plus(_plus(d ^ (c | ~a), b), _plus(k3, m[w3, i])), 21))
                    v[0, i], v[1, i], v[2, i], v[3, i] = a, b, c, d
            for i in range(LANES):
                if block < blocks[i]:  # a lane whose message has ended keeps its state
                    for j in range(4):
                        state[j, i] += v[j, i]
                        v[j, i] = state[j, i]
