"""Networks of the papers, by name or by the kind of data."""

from vicinal.models.averaged import Averaged
from vicinal.models.boosted import Boosted
from vicinal.models.ensemble_mlp import EnsembleMLP
from vicinal.models.lenet import LeNet
from vicinal.models.linear import Linear
from vicinal.models.mlp import MLP
from vicinal.models.mlp_and_trees import MLPAndTrees
from vicinal.models.pooled import PooledEncoder
from vicinal.models.preact import PreActBlock, PreActResNet
from vicinal.models.pretrained import load_pretrained, pretrained_statistics, pretrained_weights
from vicinal.models.sentence_cnn import SentenceCNN
from vicinal.models.specification import (
    KINDS,
    Inputs,
    ModelSpec,
    build,
    features_of,
    front_end_of,
    names,
    specify,
    tokenizer_of,
)
from vicinal.models.spectrogram import OnSpectrogram, Spectrogram
from vicinal.models.two_views import TwoViewMLP
from vicinal.models.vgg import VGG

__all__ = ["build", "specify", "names", "tokenizer_of", "features_of", "front_end_of", "load_pretrained",
           "pretrained_statistics", "pretrained_weights", "ModelSpec", "Inputs", "KINDS", "Averaged", "Boosted",
           "EnsembleMLP", "LeNet", "Linear", "MLP", "MLPAndTrees", "OnSpectrogram", "PooledEncoder", "PreActBlock",
           "PreActResNet", "SentenceCNN", "Spectrogram", "TwoViewMLP", "VGG"]  # fmt: skip
