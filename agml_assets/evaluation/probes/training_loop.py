"""The training loop that the probes with a gradient share: shuffled batches, cosine schedule, one seed."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Shaped

from agml_assets.errors import UserError

if TYPE_CHECKING:
    import torch

FINAL_SHARE = 0.01
"""Last learning rate over the first: BioBench's 3e-6 over 3e-4."""

_RESIDENT_SHARE = 0.5  # of the GPU's free memory that features may take; else each batch is copied there


def train(
    make: "Callable[[], tuple[torch.nn.Module, torch.optim.Optimizer]]",
    loss: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]",
    features: Float[np.ndarray, "n d"],
    targets: Shaped[np.ndarray, "n ..."],
    *,
    n_steps: int,
    batch_size: int,
    seed: int,
    device: str,
) -> "torch.nn.Module":
    """Return a trained model, on the processor and in evaluation mode.

    Examples are shuffled anew at each pass and the last, shorter batch of a pass is kept. After step t = 1..T the
    learning rate becomes r_T + (r_0 - r_T) (1 + cos(pi t / T)) / 2 with r_T = r_0 / 100; there is no warm-up. All
    is float32. Initial weights, order and dropout come from `seed`; PyTorch's own random state is left as it was.

    Args:
        make: Returns the model, with initial weights, and its optimizer, which holds r_0.
        loss: Of outputs and targets, a mean over the batch.
        features: Brought to float32.
        targets: As `loss` takes them.
        n_steps: T, 1 or more.
        batch_size: Examples a step, 1 or more.
        seed: Of everything that is drawn.
        device: `cpu` or `cuda`.

    Raises:
        UserError: The weights are not finite in the end, or there is no such device.
        ValueError: `n_steps` or `batch_size` is below 1.
    """
    import torch

    if n_steps < 1 or batch_size < 1:
        raise ValueError(f"n_steps = {n_steps} and batch_size = {batch_size} have to be 1 or more.")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise UserError(
            f"A probe cannot train on device {device!r} here. Give 'cpu', or 'cuda' where there is a GPU."
        )
    inputs = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    labels = torch.from_numpy(targets)
    cuda = [torch.cuda.current_device()] if device == "cuda" else []
    if cuda and inputs.nbytes < _RESIDENT_SHARE * torch.cuda.mem_get_info()[0]:
        inputs, labels = inputs.to(device), labels.to(device)
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        model, optimizer = make()
        model.to(device).train()
        first_rate = optimizer.param_groups[0]["lr"]
        order = torch.empty(0, dtype=torch.int64)
        for step in range(1, n_steps + 1):
            if not len(order):
                order = torch.randperm(len(inputs))
            batch, order = order[:batch_size].to(inputs.device), order[batch_size:]
            optimizer.zero_grad()
            # Whole rows are copied faster by this than by an index.
            loss(model(inputs.index_select(0, batch).to(device)), labels[batch].to(device)).backward()
            optimizer.step()
            rate = learning_rate_after(step, n_steps, first_rate)
            for parameters in optimizer.param_groups:
                parameters["lr"] = rate
    if not all(bool(torch.isfinite(weights).all()) for weights in model.parameters()):
        raise UserError(
            f"Training diverged at learning_rate = {first_rate:g}. Set a lower one, or scale the features."
        )
    return model.cpu().eval()


def learning_rate_after(step: int, n_steps: int, first_rate: float) -> float:
    """Return the rate that follows a step, 1..n_steps: see `train`."""
    final_rate = FINAL_SHARE * first_rate
    return final_rate + 0.5 * (first_rate - final_rate) * (1 + math.cos(math.pi * step / n_steps))
