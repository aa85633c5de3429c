"""Models that read a text: classes of texts, and words that were left out."""

from benchmarks.exactness.data import integers
from benchmarks.exactness.keras_hub.programs import (
    ROWS,
    class_loss,
    classified,
    hub,
    optimizer,
    program,
    regressed,
    tokens,
)
from benchmarks.exactness.registry import family

WORDS, LENGTH = 10, 5
SMALL = dict(
    vocabulary_size=WORDS, num_layers=2, hidden_dim=2, intermediate_dim=4
)
BERT = dict(num_heads=2, max_sequence_length=LENGTH, **SMALL)


def inputs(*left_out, segments=True):
    found = tokens(WORDS, LENGTH)
    if segments:
        found["segment_ids"] = integers(2, ROWS, LENGTH, seed=2)
    return {key: value for key, value in found.items() if key not in left_out}


def masked(backbone, task, x):
    """A backbone under a head that guesses two words that were left out."""
    model = task(backbone, preprocessor=None)
    model.compile(optimizer(), class_loss())
    x = {**x, "mask_positions": integers(LENGTH, ROWS, 2, seed=3)}
    return program(model, x, integers(WORDS, ROWS, 2, seed=4))


@family("albert")
def albert():
    backbone = hub().AlbertBackbone(
        num_groups=1, num_inner_repetitions=1, embedding_dim=16, **BERT
    )
    return classified(backbone, hub().AlbertTextClassifier, inputs())


@family("bert")
def bert():
    return masked(hub().BertBackbone(**BERT), hub().BertMaskedLM, inputs())


@family("deberta_v3")
def deberta():
    backbone = hub().DebertaV3Backbone(**BERT)
    return classified(
        backbone, hub().DebertaV3TextClassifier, inputs(segments=False)
    )


@family("distil_bert")
def distil_bert():
    backbone = hub().DistilBertBackbone(**BERT)
    return masked(backbone, hub().DistilBertMaskedLM, inputs(segments=False))


@family("electra")
def electra():
    settings = {**BERT, "vocab_size": WORDS, "embedding_dim": 2}
    del settings["vocabulary_size"]
    return regressed(hub().ElectraBackbone(**settings), inputs())


@family("esm")
def esm():
    settings = {**SMALL, "hidden_dim": 4, "intermediate_dim": 8}
    backbone = hub().ESMBackbone(num_heads=2, **settings)
    x = inputs("padding_mask", segments=False)
    return classified(backbone, hub().ESMProteinClassifier, x)


@family("f_net")
def f_net():
    settings = {**BERT}
    del settings["num_heads"]
    backbone = hub().FNetBackbone(**settings)
    x = inputs("padding_mask")
    return classified(backbone, hub().FNetTextClassifier, x)


@family("roberta")
def roberta():
    backbone = hub().RobertaBackbone(**BERT)
    return masked(backbone, hub().RobertaMaskedLM, inputs(segments=False))


@family("roformer_v2")
def roformer():
    backbone = hub().RoformerV2Backbone(num_heads=1, head_size=2, **SMALL)
    x = inputs("padding_mask")
    return classified(backbone, hub().RoformerV2TextClassifier, x)


@family("xlm_roberta")
def xlm_roberta():
    backbone = hub().XLMRobertaBackbone(**BERT)
    x = inputs(segments=False)
    return classified(backbone, hub().XLMRobertaTextClassifier, x)


@family("xlnet")
def xlnet():
    return regressed(hub().XLNetBackbone(num_heads=2, **SMALL), inputs())
