"""Models of a few thousand random parameters, saved as the hub keeps them, and images for them."""

import numpy as np
from PIL import Image

HALF = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {**HALF, "vocab_size": 99, "num_hidden_layers": 1, "eos_token_id": 98}
PATCHES = {"image_size": 32, "patch_size": 8}


def photograph(seed=0, size=(320, 300)):
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, size=(9, 11, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def save_clip(folder):
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    config = CLIPConfig(text_config=TEXT, vision_config={**HALF, **PATCHES}, projection_dim=24)
    return _save(folder, CLIPModel, config, CLIPImageProcessorPil(**_square(32), resample=3))


def save_siglip(folder):
    from transformers import SiglipConfig, SiglipImageProcessorPil, SiglipModel

    config = SiglipConfig(text_config={**TEXT, "projection_size": 32}, vision_config={**HALF, **PATCHES})
    return _save(folder, SiglipModel, config, SiglipImageProcessorPil(size={"height": 32, "width": 32}))


def save_dinov2_with_registers(folder):
    from transformers import BitImageProcessorPil, Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    half = {k: v for k, v in HALF.items() if k != "intermediate_size"}
    config = Dinov2WithRegistersConfig(**half, **PATCHES, num_register_tokens=4)
    processor = BitImageProcessorPil(
        size={"shortest_edge": 256}, crop_size={"height": 32, "width": 32}, resample=3
    )
    return _save(folder, Dinov2WithRegistersModel, config, processor)


def save_dinov3(folder):
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    return _save(folder, DINOv3ViTModel, DINOv3ViTConfig(**HALF, **PATCHES, num_register_tokens=4), None)


def save_aimv2(folder, use_head=False):
    from transformers import Aimv2VisionConfig, Aimv2VisionModel, CLIPImageProcessorPil

    config = Aimv2VisionConfig(**HALF, **PATCHES, use_head=use_head)
    return _save(folder, Aimv2VisionModel, config, CLIPImageProcessorPil(**_square(32), resample=3))


def _square(side):
    return {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}


def _save(folder, model, config, processor):
    import torch

    torch.manual_seed(0)
    model = model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # what starts as zeros and ones would hide what is left out
            parameter.add_(torch.randn_like(parameter) * 0.02)
    model.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)
    return model


def save_tokenizer(folder):
    """Save a tokenizer of letters beside a tiny model, whose vocabulary is 99 large; texts end as theirs do."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz .,!?", start=3)}
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, **letters, "<end>": 98}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 98)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="<end>"
    ).save_pretrained(folder)
