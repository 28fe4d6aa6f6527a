"""Data sets of the papers by name, from small files in the formats they were published in."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from scipy.io import wavfile

from vicinal import data
from vicinal.data.named_datasets import from_name
from vicinal.data.published_tables import PUBLISHED


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """A data root of its own, and no data set of this machine."""
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def lines(rows, separator="\t"):
    return "\n".join(separator.join(map(str, row)) for row in rows) + "\n"


def jsonl(rows):
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def opened(name):
    """The rows and the parts of a named table."""
    table = from_name(name)
    rows = [table_row for chunk in table.chunks() for table_row in pa.table(dict(chunk.columns)).to_pylist()]
    return rows, None if table.parts is None else list(table.parts)


def test_iris_and_abalone_have_no_header(root):
    write(
        root / "uci/iris/iris.data", lines([(5.1, 3.5, 1.4, 0.2, "Iris-setosa"), (6, 3, 5, 2, "Iris-virginica")], ",")
    )
    rows, parts = opened("iris")
    assert parts is None
    assert [row["class"] for row in rows] == ["Iris-setosa", "Iris-virginica"]
    assert float(rows[0]["petal_width"]) == 0.2
    write(root / "abalone/abalone.data", "M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15\nI,.3,.2,.1,.2,.1,.1,.1,7\n")
    assert [(row["sex"], row["rings"]) for row in opened("abalone")[0]] == [("M", "15"), ("I", "7")]


def test_abalones_rings_are_classes_even_those_of_a_single_row(root):
    rings = [*range(5, 27), *range(5, 26)]  # 26 occurs once
    rows = [("M", *(np.random.default_rng(k).random(7).round(3)), ring) for k, ring in enumerate(rings)]
    write(root / "abalone/abalone.data", lines(rows, ","))
    task = data.load("abalone", data.SplitOptions(rare="train", val=0.0, test=0.3))
    assert set(task.classes) == {str(ring) for ring in rings}
    with pytest.raises(ValueError, match="rare"):
        data.load("abalone")


def test_arrhythmia_has_missing_values(root):
    rng = np.random.default_rng(0)
    rows = [[*rng.integers(0, 90, 278), "?" if k == 3 else 5, 1 + k % 2] for k in range(40)]
    write(root / "uci/arrhythmia/arrhythmia.data", lines(rows, ","))
    task = data.load("arrhythmia")
    assert task.classes == ("1", "2")
    assert task.spec["input_shape"][0] >= 278


@pytest.mark.parametrize("header", [True, False])
def test_htru2_with_and_without_a_header(root, header):
    names = "Mean_IP,SD_IP,EK_IP,Skewness_IP,Mean_DM_SNR,SD_DM_SNR,EK_DM_SNR,Skewness_DM_SNR,Class\n"
    body = lines([(140.5 + k, 55.7, -0.2, -0.7, 3.2, 19.1, 8.0, 74.2, k % 2) for k in range(40)], ",")
    write(root / "uci/htru2/HTRU_2.csv.gz", gzip.compress(((names if header else "") + body).encode()))
    assert len(opened("htru2")[0]) == 40
    assert data.load("htru2").classes == ("0", "1")


def test_phishing_with_and_without_its_duplicates(root):
    head = (
        "@relation phishing\n\n@attribute URL  {1,0,-1}\n@attribute port {1,-1}\n@attribute Result  {-1,1}\n\n@data\n"
    )
    write(root / "uci/phishing/Training Dataset.arff", head + "1,1,-1\n0,1,1\n1,1,-1\n1,1,1\n")
    assert [tuple(row.values()) for row in opened("phishing")[0]] == [
        ("1", "1", "-1"), ("0", "1", "1"), ("1", "1", "-1"), ("1", "1", "1")]  # fmt: skip
    assert len(opened("phishing:distinct")[0]) == 3
    assert "left out: 1 duplicate rows" in from_name("phishing:distinct").notes
    assert from_name("phishing").fingerprint != from_name("phishing:distinct").fingerprint


def test_arcene_keeps_labels_in_files_of_their_own(root):
    for part, n in (("train", 4), ("valid", 2)):
        write(
            root / f"uci/arcene/arcene_{part}.data.gz",
            gzip.compress(lines([(k, 0, 7) for k in range(n)], " ").encode()),
        )
        write(root / f"uci/arcene/arcene_{part}.labels", "".join(f"{1 - 2 * (k % 2)}\n" for k in range(n)))
    rows, parts = opened("arcene")
    assert parts == ["train"] * 4 + ["test"] * 2
    assert rows[5] == {"1": 1, "2": 0, "3": 7, "label": "-1"}


def test_trec_and_mr(root):
    write(
        root / "text/trec/train_5500.label",
        "DESC:manner How did it \xe9nd ?\nENTY:food What is it ?\n".encode("latin-1"),
    )
    write(root / "text/trec/TREC_10.label", "NUM:dist How far ?\n")
    rows, parts = opened("trec")
    assert rows[0] == {"text": "How did it énd ?", "label": "DESC"}
    assert parts == ["train", "train", "test"]
    write(root / "mr/rt-polarity.pos", "a good film . \nfine\n")
    write(root / "mr/rt-polarity.neg", "dull\n")
    assert Counter(row["label"] for row in opened("mr")[0]) == {"positive": 2, "negative": 1}


def test_imdb_as_published_and_as_json_lines(root):
    for part in ("train", "test"):
        for k in range(20):
            write(root / f"aclImdb/{part}/{('neg', 'pos')[k % 2]}/{k}_1.txt", f"review {k} of {part}")
    rows, parts = opened("imdb")
    assert Counter(zip(parts, (row["label"] for row in rows), strict=True)) == dict.fromkeys(
        [("train", "negative"), ("train", "positive"), ("test", "negative"), ("test", "positive")], 10
    )
    reviews = [{"id": str(k), "label": k % 2, "rating": 3, "text": f"review {k}"} for k in range(1000)]
    for part in ("train", "test"):
        write(root / f"text/imdb/imdb_{part}.jsonl.xz", lzma.compress(jsonl(reviews).encode()))
    rows, parts = opened("imdb:w21")
    # W21 Table 1: 25,000, 3,200 and 21,800; here a 25th of each
    assert Counter(parts) == {"train": 1000, "val": 128, "test": 872}
    assert Counter(row["label"] for row, part in zip(rows, parts, strict=True) if part == "val") == {
        "negative": 64, "positive": 64}  # fmt: skip
    assert opened("imdb:w21")[1] == parts


def test_ag_news(root):
    body = "".join(f'"{1 + k % 4}","Title {k}","He said ""{k}"", and\\went."\n' for k in range(76))
    write(root / "ag_news_csv/train.csv", body)
    write(root / "ag_news_csv/test.csv", body)
    rows, parts = opened("agnews")
    assert rows[1] == {"text": 'Title 1 He said "1", and\\went.', "label": "Sports"}
    assert Counter(parts) == {"train": 76, "test": 76}
    assert Counter(opened("agnews:w21")[1]) == {"train": 76, "val": 24, "test": 52}  # of 7,600: 2,400 and 5,200


def test_snli_and_mnli_name_their_columns_alike(root):
    rows = [
        {"gold_label": "neutral", "sentence1": "A man.", "sentence2": "He eats.", "pairID": "1"},
        {"gold_label": "-", "sentence1": "A dog.", "sentence2": "It runs.", "pairID": "2"},
        {"gold_label": "entailment", "sentence1": "A cat.", "sentence2": "An animal.", "pairID": "3"},
    ]
    for part in ("train", "dev", "test"):
        write(root / f"snli_1.0/snli_1.0_{part}.jsonl", jsonl(rows))
        write(root / f"multinli_1.0/multinli_1.0_{part}.jsonl", jsonl(rows))
    for part in ("matched", "mismatched"):
        write(root / f"multinli_1.0/multinli_1.0_dev_{part}.jsonl", jsonl([{**rows[0], "sentence1": part}]))
    read, parts = opened("snli")
    assert read[0] == {"premise": "A man.", "hypothesis": "He eats.", "label": "neutral"}
    assert parts == ["train"] * 2 + ["val"] * 2 + ["test"] * 2
    assert "left out: 3 rows without a label" in from_name("snli").notes
    read, parts = opened("mnli")
    assert list(read[0]) == ["premise", "hypothesis", "label"]
    assert (read[-1]["premise"], parts[-1]) == ("matched", "test")
    assert opened("mnli:mismatched")[0][0]["premise"] == "mismatched"
    # as a text file with a header
    header = ("gold_label", "sentence1_binary_parse", "sentence1", "sentence2")
    write(root / "snli/snli_1.0_train.txt", lines([header, ("contradiction", "( )", "No.", 'He says "yes.')]))
    assert opened("snli")[0] == [{"premise": "No.", "hypothesis": 'He says "yes.', "label": "contradiction"}]


def test_qqp_in_three_formats(root):
    head = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    write(root / "QQP/train.tsv", lines([head, (0, 1, 2, "Why ?", "How ?", 0)]))
    write(root / "QQP/dev.tsv", lines([head, (0, 1, 2, "Who ?", "Who is it ?", 1)]))
    rows, parts = opened("qqp")
    assert rows[1] == {"sentence1": "Who ?", "sentence2": "Who is it ?", "label": "1"}
    assert parts == ["train", "val"]
    assert opened("glue:qqp")[1] == ["train", "test"]
    write(root / "qqp/dev.tsv.gz", gzip.compress(b"1\tWhy \xff ?\tWhy so ?\t18\n0\tWho ?\tHow ?\t19\n"))
    rows, parts = opened("qqp")
    assert rows[0] == {"sentence1": "Why \ufffd ?", "sentence2": "Why so ?", "label": "1"}
    assert parts is None
    assert "parts of qqp that are there: val; together they are one set" in from_name("qqp").notes
    write(root / "qqp/quora_duplicate_questions.tsv", lines([head, (0, 1, 2, '"Why\n?"', '"A ""b"" ?"', 1)]))
    assert opened("qqp")[0][0] == {"sentence1": "Why\n?", "sentence2": 'A "b" ?', "label": "1"}


def test_qqp_of_glue_has_a_test_file_without_labels(root):
    head = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    rows = [(k, k, k, f"Why {k} ?", f"How {k} ?", k % 2) for k in range(20)]
    write(root / "QQP/train.tsv", lines([head, *rows, (20, 1, 2, "a line cut short")]))
    write(root / "QQP/dev.tsv", lines([head, *rows[:6]]))
    write(root / "QQP/test.tsv", lines([("id", "question1", "question2"), *((k, "Why ?", "How ?") for k in range(9))]))
    task = data.load("qqp", data.TextOptions(tokenizer="words"))
    assert len(task.test) == 6  # the development set, whose labels are known
    assert len(task.train) + len(task.val) == 20
    assert any("left out: 10 rows without a label" in note for note in task.notes)
    assert any("the development set is the test set" in note for note in task.notes)


def test_splits_of_desai_and_durrett(root):
    """Their files where they are there, else halves of the development sets."""
    row = {"ctx": "A man. he", "ctx_a": "A man.", "ctx_b": "he", "endings": ["a", "b", "c", "d"], "label": 3}
    write(root / "hellaswag/hellaswag_train.jsonl", jsonl([row]))
    write(root / "hellaswag/hellaswag_val.jsonl", jsonl([{**row, "label": k % 2} for k in range(8)]))
    rows, parts = opened("hellaswag:desai")
    assert rows[0] == {"context": "A man.", "endings": ["he a", "he b", "he c", "he d"], "label": "3"}
    assert Counter(parts) == {"train": 1, "val": 4, "test": 4}
    assert any("calibration_data/HellaSWAG is not there: half" in note for note in from_name("hellaswag:desai").notes)
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    pairs = lines(
        [("index", "sentence1", "sentence2", "label1", "gold_label"), (0, "A man.", "He.", "neutral", "neutral")]
    )
    questions = lines(
        [("id", "qid1", "qid2", "question1", "question2", "is_duplicate"), (0, 1, 2, "Why ?", "How ?", 0)]
    )
    home = root / "calibration_data"
    for part in ("train", "dev", "test"):
        write(home / f"SWAG/{part}.txt", head + '0,v,1,"She, then",She,then,gold,a,b,c,d,2\n')
        write(home / f"HellaSWAG/{part}.txt", jsonl([row]))
        write(home / f"SNLI/{part}.txt", pairs)
        write(home / f"MNLI/{part}.txt", pairs)
        write(home / f"QQP/{part}.txt", questions)
        write(home / f"TwitterPPDB/{part}.txt", lines([("tweet", "other", "(5, 6)", "http://t.co/x")]))
    for name in ("snli", "mnli", "qqp", "twitterppdb", "swag", "hellaswag"):
        rows, parts = opened(f"{name}:desai")
        assert parts == ["train", "val", "test"]
        assert len(rows) == 3
    assert opened("swag:desai")[0][0] == {"context": "She", "endings": [f"then {e}" for e in "abcd"], "label": "2"}


def test_twitterppdb_counts_votes(root):
    rows = [(f"tweet {k}", f"other {k}", f"({k}, 6)", "http://t.co/x") for k in range(7)]
    write(root / "TwitterPPDB/Twitter_URL_Corpus_train.txt", lines(rows))
    write(root / "TwitterPPDB/Twitter_URL_Corpus_test.txt", lines(rows))
    read, parts = opened("twitterppdb")
    assert [row["label"] for row in read[:6]] == ["0", "0", "0", "1", "1", "1"]
    assert len(parts) == 12


def test_swag_and_hellaswag_are_lists_of_endings(root):
    head = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    write(root / "swag/train.csv", head + '0,v,1,"She, then",She,then,gold,a,b,c,d,2\n')
    write(root / "swag/val.csv", head + "1,v,1,He,He,x,gold,e,f,g,h,0\n")
    rows, parts = opened("swag")
    assert rows[0] == {"context": "She, then", "endings": ["a", "b", "c", "d"], "label": "2"}
    assert parts == ["train", "test"]
    row = {"ctx": "A man. he", "ctx_a": "A man.", "ctx_b": "he", "endings": ["a", "b", "c", "d"], "label": 3}
    write(root / "hellaswag/hellaswag_train.jsonl", jsonl([row]))
    write(root / "hellaswag/hellaswag_val.jsonl", jsonl([{**row, "label": "1"}]))
    assert opened("hellaswag")[0][1] == {"context": "A man. he", "endings": ["a", "b", "c", "d"], "label": "1"}
    assert from_name("hellaswag").choices == ("endings",)


GLUE = {
    "sst2": ("SST-2", [("sentence", "label"), ("good film ", "1")], {"text": "good film ", "label": "positive"}),
    "mrpc": (
        "MRPC",
        [("\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"), (1, 7, 8, "It is so .", 'So "it is .')],
        {"sentence1": "It is so .", "sentence2": 'So "it is .', "label": "1"},
    ),
    "qnli": (
        "QNLI",
        [("index", "question", "sentence", "label"), (0, "When ?", "In 1990.", "entailment")],
        {"sentence1": "When ?", "sentence2": "In 1990.", "label": "entailment"},
    ),
    "rte": (
        "RTE",
        [("index", "sentence1", "sentence2", "label"), (0, "A.", "B.", "not_entailment")],
        {"sentence1": "A.", "sentence2": "B.", "label": "not_entailment"},
    ),
    "wnli": (
        "WNLI",
        [("index", "sentence1", "sentence2", "label"), (0, "A.", "B.", 1)],
        {"sentence1": "A.", "sentence2": "B.", "label": "1"},
    ),
    "stsb": (
        "STS-B",
        [("index", "genre", "sentence1", "sentence2", "score"), (0, "news", "A plane.", "It.", "2.600")],
        {"sentence1": "A plane.", "sentence2": "It.", "label": "2.600"},
    ),
    "cola": ("CoLA", [("gj04", 1, "", "They left.")], {"sentence": "They left.", "label": "1"}),
}  # fmt: skip


@pytest.mark.parametrize("task", GLUE)
def test_glue(root, task):
    folder, rows, expected = GLUE[task]
    write(root / f"glue_data/{folder}/train.tsv", lines(rows))
    write(root / f"glue_data/{folder}/dev.tsv", lines(rows))
    read, parts = opened(f"glue:{task}")
    assert read == [expected, expected]
    assert parts == ["train", "test"]  # labels of GLUE's test sets are not published


def test_mnli_of_glue(root):
    head = ("index", "sentence1", "sentence2", "label1", "gold_label")
    for name in ("train", "dev_matched", "dev_mismatched"):
        write(root / f"GLUE/MNLI/{name}.tsv", lines([head, (0, name, "It.", "neutral", "entailment")]))
    assert opened("glue:mnli")[0][0] == {"premise": "train", "hypothesis": "It.", "label": "entailment"}
    assert opened("glue:mnli:mismatched")[0][0]["premise"] == "dev_mismatched"


def test_cola_from_its_archive(root):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"):
            archive.writestr(f"cola_public/raw/{name}.tsv", f"gj04\t1\t\t{name}\nbc01\t0\t*\tNot so.\n")
    write(root / "text/cola/cola_public.zip", content.getvalue())
    rows, parts = opened("glue:cola")
    assert parts == ["train"] * 2 + ["test"] * 4
    assert [row["sentence"] for row in rows[::2]] == ["in_domain_train", "in_domain_dev", "out_of_domain_dev"]


def test_boolq_and_sentence_level_sst2(root):
    row = {"question": "is it", "title": "It", "passage": "It is.", "answer": True}
    write(root / "BoolQ/train.jsonl", jsonl([row]))
    write(root / "BoolQ/dev.jsonl.bz2", bz2.compress(jsonl([{**row, "answer": False}]).encode()))
    assert [row["label"] for row in opened("boolq")[0]] == ["true", "false"]
    for part in ("train", "dev", "test"):
        write(root / f"sst2/sentence_level_{part}.tsv", f"a {part} film\t1\n")
    assert opened("sst2")[1] == ["train", "val", "test"]


def test_a_model_of_one_set_reads_another(root):
    rows = [
        {"gold_label": ("neutral", "entailment")[k % 2], "sentence1": f"a {k}", "sentence2": "b"} for k in range(40)
    ]
    write(root / "snli/snli_1.0_train.jsonl", jsonl(rows))
    write(root / "mnli/multinli_1.0_dev_matched.jsonl", jsonl(rows[:6]))
    task = data.load("snli", data.TextOptions(tokenizer="words"))
    assert task.preprocessing.columns == ("premise", "hypothesis")
    assert len(data.read("mnli", task.preprocessing, classes=task.classes)) == 6


def test_a_row_of_another_format_is_named(root):
    write(root / "swag/train.csv", "sent1,sent2,label\nShe,then,2\n")
    with pytest.raises(ValueError, match=r"swag/train.csv' has a row of the columns sent1, sent2, label, which is not"):
        from_name("swag")


def test_what_is_missing_or_broken_is_named(root):
    assert set(PUBLISHED) <= set(data.NAMES)
    with pytest.raises(FileNotFoundError, match=r"iris is not there: looked in .*data for iris/ with iris.data"):
        data.load("iris")
    write(root / "iris/iris.data.gz", b"no archive")
    with pytest.raises(ValueError, match=r"iris.data.gz' cannot be unpacked"):
        data.load("iris")
    write(root / "abalone/abalone.data", "M,0.4,0.3,0.0,0.5,0.2,0.1,0.1,15\nM,0.4\n")
    with pytest.raises(ValueError, match=r"row 2 of 'abalone.data' has 2 fields"):
        data.load("abalone")
    write(root / "twitterppdb/test.txt", "a\tb\t(3, 6)\n")
    with pytest.raises(ValueError, match=r"twitterppdb: no row of .*test.txt is labelled"):
        data.load("twitterppdb")


def recordings():
    for digit in "01":
        for speaker in ("george", "jackson", "lucas", "nicolas", "theo", "yweweler"):
            for take in (0, 5, 6):
                content = io.BytesIO()
                wavfile.write(content, 8000, np.full(800, 100 * take, np.int16))
                yield f"{digit}_{speaker}_{take}.wav", content.getvalue()


def test_spoken_digits_from_the_archive_and_from_the_folder(root):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        for name, wave in [*recordings(), ("../../0_mallory_0.wav", b"x"), ("notes.txt", b"y")]:
            member = tarfile.TarInfo(f"recordings/{name}")
            member.size = len(wave)
            archive.addfile(member, io.BytesIO(wave))
    write(root / "speech/fsdd/recordings.tar.xz", content.getvalue())
    folder = from_name("fsdd")
    assert not (root.parent / "0_mallory_0.wav").exists()
    speaker = {path.name: path.name.split("_")[1] for path in folder.paths}
    parts = dict(zip((path.name for path in folder.paths), folder.parts, strict=True))
    assert {part for name, part in parts.items() if speaker[name] == "theo"} == {"val"}
    assert {speaker[name] for name, part in parts.items() if part == "test"} == {"yweweler"}
    (root / "speech/fsdd/recordings.tar.xz").unlink()
    for name, wave in recordings():
        write(root / f"speech/fsdd/recordings/{name}", wave)
    task = data.load("fsdd")
    assert task.classes == ("0", "1")
    assert {len(task.train), len(task.val), len(task.test)} == {24, 6}
    by_take = from_name("fsdd:takes")
    assert {
        p.name.endswith("_0.wav") for p, part in zip(by_take.paths, by_take.parts, strict=True) if part == "test"
    } == {True}


def test_speech_commands_come_with_lists(root):
    home = root / "speech_commands_v0.01"
    for word in ("yes", "no", "_background_noise_"):
        for k in range(6):
            wave = io.BytesIO()
            wavfile.write(wave, 16_000, np.zeros(1600, np.int16))
            write(home / word / f"{k}_nohash_0.wav", wave.getvalue())
    write(home / "validation_list.txt", "yes/0_nohash_0.wav\nno/0_nohash_0.wav\n")
    write(home / "testing_list.txt", "yes/1_nohash_0.wav\nno/1_nohash_0.wav\nno/99_nohash_0.wav\n")
    for source in ("speechcommands", str(home)):
        task = data.load(source)
        assert task.classes == ("no", "yes")
        assert [len(task.train), len(task.val), len(task.test)] == [8, 2, 2]
        assert {task.test.original(i).rsplit("/", 1)[1] for i in range(2)} == {"1_nohash_0.wav"}
    assert "1 files of validation_list.txt" in " ".join(task.notes)


def test_imagenets_val_is_the_test_set(root):
    """A user's folder of the same shape keeps `val` for validation, and a note says where the test set comes from."""
    image = io.BytesIO()
    Image.new("RGB", (40, 40), "red").save(image, "JPEG")
    for home, classes in ((root / "imagenet", ("n01440764", "n01443537")), (root / "mine", ("cat", "dog"))):
        for part, n in (("train", 8), ("val", 3)):
            for name in classes:
                for k in range(n):
                    write(home / part / name / f"{part}_{k}.JPEG", image.getvalue())
    for source in ("imagenet", str(root / "imagenet")):
        task = data.load(source, data.SplitOptions(val=0))
        assert [len(task.train), len(task.val), len(task.test)] == [16, 0, 6]
        assert all("/val/" in str(task.test.original(i)) for i in range(6))
        assert any("ImageNet's val is the test set here" in note for note in task.notes)
    task = data.load(root / "mine", data.SplitOptions(test=4))
    assert [len(task.train), len(task.val), len(task.test)] == [12, 6, 4]
    assert all("/val/" in str(task.val.original(i)) for i in range(6))
    assert any("no test part: it is drawn from the training part" in note for note in task.notes)


def test_tiny_imagenet_as_published(root):
    home = root / "tiny-imagenet-200"
    image = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(image, "JPEG")
    for wnid in ("n01443537", "n01629819"):
        for k in range(4):
            write(home / "train" / wnid / "images" / f"{wnid}_{k}.JPEG", image.getvalue())
        write(home / "train" / wnid / f"{wnid}_boxes.txt", "x\t0\t0\t63\t63\n")
    for k in range(3):
        write(home / "val" / "images" / f"val_{k}.JPEG", image.getvalue())
        write(home / "test" / "images" / f"test_{k}.JPEG", image.getvalue())
    write(home / "val" / "val_annotations.txt", lines([(f"val_{k}.JPEG", "n01629819", 0, 0, 9, 9) for k in range(3)]))
    for source in ("tinyimagenet", str(home)):
        task = data.load(source, data.SplitOptions(val=2))
        assert task.classes == ("n01443537", "n01629819")
        assert [len(task.train), len(task.val), len(task.test)] == [6, 2, 3]
        assert task.test.labels == [1, 1, 1]
