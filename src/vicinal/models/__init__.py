"""Networks of the papers, by name or by the kind of data."""

from vicinal.models.boosted import Boosted
from vicinal.models.ensemble_mlp import EnsembleMLP
from vicinal.models.lenet import LeNet
from vicinal.models.linear import Linear
from vicinal.models.mlp import MLP
from vicinal.models.mlp_and_trees import MLPAndTrees
from vicinal.models.preact import PreActResNet
from vicinal.models.pretrained import load_pretrained, pretrained_weights
from vicinal.models.sentence_cnn import SentenceCNN
from vicinal.models.specification import ModelSpec, build, names, specify, tokenizer_of
from vicinal.models.spectrogram import Spectrogram
from vicinal.models.stack import Stack
from vicinal.models.tree_libraries import CatBoostTrees, LightGBMTrees
from vicinal.models.two_views import TwoViewMLP
from vicinal.models.vgg import VGG

__all__ = ["build", "specify", "names", "tokenizer_of", "load_pretrained", "pretrained_weights", "ModelSpec", "Boosted",
           "CatBoostTrees", "EnsembleMLP", "LeNet", "LightGBMTrees", "Linear", "MLP", "MLPAndTrees", "PreActResNet",
           "SentenceCNN", "Spectrogram", "Stack", "TwoViewMLP", "VGG"]  # fmt: skip
