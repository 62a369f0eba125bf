"""The batch size is the largest of a growing row that fits, twice."""

import pytest

from agml_assets.errors import UserError
from agml_assets.evaluation.backbones import find_batch_size


def device_of(limit, message="CUDA out of memory. Tried to allocate 2 GiB"):
    tried = []

    def probe(size):
        tried.append(size)
        if size > limit:
            raise RuntimeError(message)

    return probe, tried


def test_sizes_grow_by_a_half_and_a_third_in_turn_and_the_last_that_fits_is_tried_again():
    probe, tried = device_of(limit=40)
    assert find_batch_size(probe) == 32
    assert tried == [8, 12, 16, 24, 32, 48, 32]


def test_from_one_they_count_up_first():
    probe, tried = device_of(limit=10)
    assert find_batch_size(probe, start=1) == 8
    assert tried == [1, 2, 3, 4, 6, 8, 12, 8]


@pytest.mark.parametrize(("upper", "tried"), [(20, [8, 12, 16, 20, 20]), (16, [8, 12, 16, 16]), (8, [8, 8])])
def test_the_largest_size_that_is_allowed_is_the_last_to_be_tried(upper, tried):
    probe, sizes = device_of(limit=999)
    assert find_batch_size(probe, upper=upper) == upper
    assert sizes == tried


def test_a_size_that_fits_once_and_not_again_gives_way_to_the_one_before():
    sizes = []

    def probe(size):
        sizes.append(size)
        if size > 24 or (sizes.count(24) > 1 and size > 12):
            raise RuntimeError("out of memory")

    assert find_batch_size(probe) == 12
    assert sizes == [8, 12, 16, 24, 32, 24, 16, 12]


def test_where_not_even_the_first_size_fits_the_message_says_what_to_do():
    probe, _ = device_of(limit=7)
    with pytest.raises(UserError, match="batch of 8 .*precision.*smaller model"):
        find_batch_size(probe)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling",
        "MPS backend out of memory",
        "DefaultCPUAllocator: can't allocate memory: you tried",
    ],
)
def test_every_way_to_say_it_counts(message):
    assert find_batch_size(device_of(12, message)[0]) == 12


def test_memory_errors_of_torch_and_python_count():
    import torch

    for error in (torch.cuda.OutOfMemoryError("CUDA out of memory"), MemoryError()):

        def probe(size, error=error):
            if size > 16:
                raise error

        assert find_batch_size(probe) == 16


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        find_batch_size(device_of(12, "mat1 and mat2 shapes cannot be multiplied")[0])


@pytest.mark.parametrize(("start", "upper"), [(0, 8), (-1, 8), (9, 8)])
def test_sizes_that_make_no_sense_are_refused(start, upper):
    with pytest.raises(ValueError, match="1 <= start <= upper"):
        find_batch_size(lambda size: None, start, upper)
