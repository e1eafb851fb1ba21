"""The weights of an ONNX graph of BERT, in float32, for both sides of a comparison: a graph, and a torch model.

A graph with int8 weights multiplies each by its scale before use, so that what it computes with are float32 numbers: the
very ones that are written here, as initialisers of the graph and as the state of a ``transformers`` model.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import onnx

from pytrace.errors import ModelFileError
from pytrace.training.bert import bert_network, bert_state, float32_graph

# Of MiniLM and of every BERT up to the large ones it is 32 or 64, and no initializer tells; the wrong one fails the bench's
# own comparison of vectors.
HEAD_WIDTH = 32


def write_both(directory: Path, graph: Path, target: Path) -> tuple[Path, Any]:
    """Write a float32 graph with the files beside it, and load the same weights into sentence-transformers.

    Parameters
    ----------
    directory, graph
        The encoder's own.
    target
        An empty directory to write to.

    Returns
    -------
    Path
        The directory of the float32 graph.
    SentenceTransformer
        On the CPU, with mean pooling and normalisation, its length and tokenizer the encoder's own.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import PreTrainedTokenizerFast

    from pytrace.models.encoders.encoder_files import EncoderFiles

    files = EncoderFiles(directory)
    if files.modules.pooling != ("mean",) or not files.normalize:
        raise ModelFileError(
            f"{directory} pools by {files.modules.pooling}, normalised: {files.normalize}; this bench wants mean and normalised"
        )
    model = onnx.load(str(graph))
    values = float32_graph(model)
    ours = target / "float32"
    shutil.copytree(directory, ours, ignore=shutil.ignore_patterns("*.onnx*"))
    onnx.save(model, str(ours / "model.onnx"))

    state = bert_state(model, values)
    bert = bert_network(state, head_width=HEAD_WIDTH)
    theirs = target / "torch"
    bert.save_pretrained(theirs)
    marks = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(files.tokenizer), model_max_length=files.max_tokens, **marks)
    tokenizer.save_pretrained(theirs)
    transformer = Transformer(str(theirs), max_seq_length=files.max_tokens, model_kwargs={"add_pooling_layer": False})
    modules = [transformer, Pooling(bert.config.hidden_size, "mean"), Normalize()]
    return ours, SentenceTransformer(modules=modules, device="cpu")
