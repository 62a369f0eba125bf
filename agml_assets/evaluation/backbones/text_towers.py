"""The text half of CLIP- and SigLIP-type models of `transformers`: vectors of sentences, to compare images with.

What is asked, and what is made of the answers, is in `evaluation.zero_shot`.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from agml_assets.device import use_device
from agml_assets.embeddings.frozen_models import local_model
from agml_assets.errors import UserError
from agml_assets.evaluation.backbones.extras import cannot_load
from agml_assets.registry.models import ModelEntry

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

_SIGLIP_TOKENS = 64
_SENTENCES = 256  # in one forward pass


class TextTower:
    """The text half of a registered model, in float32; the layers of its image half are not read.

    A SigLIP reads 64 tokens, padded, and no mask: so it was trained (Zhai et al., ICCV 2023; its processor in
    `transformers`), and in lower case (Tschannen et al., SigLIP 2, 2025; a tokenizer of SigLIP lowers by itself).

    Args:
        entry: A model of the provider transformers with `zero_shot`.

    Raises:
        UserError: It is none.
    """

    def __init__(self, entry: ModelEntry) -> None:
        if entry.provider != "transformers" or not entry.zero_shot:
            raise UserError(
                f"Model {entry.key!r} cannot answer zero-shot: that takes a CLIP- or SigLIP-type model of "
                "the provider transformers, with `zero_shot: true` in its entry. Choose another model or probe."
            )
        if entry.vector != "features":
            raise UserError(
                f"Model {entry.key!r} has `vector: {entry.vector}`, which has no place among sentences: zero-shot "
                "answers need `vector: features`."
            )
        self._entry = entry

    def encode(self, sentences: Sequence[str]) -> tuple[Float[np.ndarray, "n d"], float]:
        """Return a vector of unit length for each sentence, float32, and the factor of cosines.

        The factor is the model's own `exp(logit_scale)`, by which it multiplies cosines before softmax or sigmoid.

        Raises:
            UserError: The model cannot be loaded, or has no text tower.
        """
        import torch

        with use_device(f"sentences with {self._entry.key}") as device, torch.inference_mode():
            tokenizer, model = self._load()
            model = model.eval().to(device, torch.float32)
            parts = []
            for start in range(0, len(sentences), _SENTENCES):
                tokens = self._tokens(tokenizer, model, sentences[start : start + _SENTENCES])
                vectors = model.get_text_features(**{name: one.to(device) for name, one in tokens.items()})
                vectors = getattr(vectors, "pooler_output", vectors).float()
                parts.append(torch.nn.functional.normalize(vectors, dim=-1).cpu().numpy())
            return np.concatenate(parts), float(model.logit_scale.float().exp())

    def _tokens(self, tokenizer: Any, model: Any, sentences: Sequence[str]) -> "dict[str, torch.Tensor]":
        longest = model.config.text_config.max_position_embeddings
        if not model.config.model_type.startswith("siglip"):
            return dict(
                tokenizer(list(sentences), padding=True, truncation=True, max_length=longest, return_tensors="pt")
            )
        tokens = tokenizer(
            [sentence.lower() for sentence in sentences],
            padding="max_length",
            truncation=True,
            max_length=min(_SIGLIP_TOKENS, longest),
            return_tensors="pt",
        )
        return {"input_ids": tokens["input_ids"]}

    def _load(self) -> tuple[Any, Any]:
        from safetensors import SafetensorError
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        local = local_model(self._entry.checkpoint)
        where: dict[str, Any] = {
            "pretrained_model_name_or_path": str(local or self._entry.checkpoint),
            "revision": self._entry.revision or "main",
            "trust_remote_code": False,
        }
        try:
            config = AutoConfig.from_pretrained(**where)
            if hasattr(getattr(config, "vision_config", None), "num_hidden_layers"):
                config.vision_config.num_hidden_layers = 0  # features of images are in the store
            tokenizer = AutoTokenizer.from_pretrained(**where)
            with _without_report():
                model, report = AutoModel.from_pretrained(**where, config=config, output_loading_info=True)
        except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
            raise cannot_load(self._entry, error) from None
        if not hasattr(model, "get_text_features") or not hasattr(model, "logit_scale"):
            raise cannot_load(self._entry, ValueError(f"a {config.model_type} has no text tower to compare with."))
        # Without the files of its vocabulary, `transformers` makes a tokenizer to which all words are one.
        if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):
            raise cannot_load(
                self._entry, ValueError("its tokenizer knows no word: files of the vocabulary lack.")
            )
        # `transformers` only warns of parts that the files lack, and gives them random weights.
        if random := [name for name in report["missing_keys"] if not name.startswith("vision_model.")]:
            raise cannot_load(
                self._entry, ValueError(f"its files lack {len(random)} of its weights, such as {random[0]}.")
            )
        return tokenizer, model


@contextmanager
def _without_report() -> Iterator[None]:
    """Keep `transformers` from listing every weight of the image half as one that was not expected."""
    from transformers.utils import logging as theirs

    before = theirs.get_verbosity()
    theirs.set_verbosity_error()
    try:
        yield
    finally:
        theirs.set_verbosity(before)
