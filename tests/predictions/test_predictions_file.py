from __future__ import annotations

import bz2
import gzip
import lzma
import unicodedata
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.predictions.samples import classifier, read_all, save
from vicinal import evaluate
from vicinal.predictions import calibrate_file, evaluate_file, open_file


def text(tmp_path, content, name="p.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(content.encode(encoding))
    return path


class TestForms:
    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
    @pytest.mark.parametrize(("kind", "prefix"), [("probs", "prob_"), ("logits", "logit_")])
    def test_all_hold_the_same(self, tmp_path, suffix, kind, prefix):
        logits, probs, labels = classifier(200, 4)
        scores = probs if kind == "probs" else logits
        file = open_file(save(tmp_path / f"p{suffix}", labels, scores, prefix=prefix))
        assert (file.kind, file.classes) == (kind, ("0", "1", "2", "3"))
        assert file.n_rows == (None if suffix == ".csv" else 200)
        found = read_all(file)
        np.testing.assert_array_equal(found[0], labels)
        np.testing.assert_array_equal(found[1], scores)

    def test_float32_stays_float32(self, tmp_path):
        _, probs, labels = classifier(50, 3, dtype=np.float32)
        for name in ("p.parquet", "p.npz"):
            _, found = read_all(open_file(save(tmp_path / name, labels, probs)))
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, probs)

    @pytest.mark.parametrize("fixed", [True, False])
    def test_a_run_s_predictions(self, tmp_path, fixed):
        logits, _, labels = classifier(30, 3, dtype=np.float32)
        kind = pa.list_(pa.float32(), 3) if fixed else pa.list_(pa.float32())
        table = pa.table({"index": range(30), "label": labels, "logits": pa.array(logits.tolist(), kind)})
        pq.write_table(table, tmp_path / "predictions.parquet")
        file = open_file(tmp_path)  # the folder of a run
        assert (file.kind, file.classes, file.others) == ("logits", ("0", "1", "2"), ("index",))
        np.testing.assert_array_equal(read_all(file)[1], logits)
        np.testing.assert_array_equal(read_all(file)[0], labels)

    @pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
    def test_compressed(self, tmp_path, suffix):
        content = b"label,prob_a,prob_b\na,0.5,0.5\nb,0.25,0.75\n"
        path = tmp_path / f"p.csv{suffix}"
        if suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("inside.csv", content)
        else:
            path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(content))
        assert read_all(open_file(path))[1].tolist() == [[0.5, 0.5], [0.25, 0.75]]

    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    def test_separators(self, tmp_path, separator):
        content = "label,prob_a,prob_b\na,0.5,0.5\n".replace(",", separator)
        assert read_all(open_file(text(tmp_path, content)))[1].tolist() == [[0.5, 0.5]]

    def test_decimal_commas_and_spaces(self, tmp_path):
        content = "label; prob_a; prob_b\n a; 0,25; 0,75\nb ;0,5;0,5\n"
        labels, scores = read_all(open_file(text(tmp_path, content)))
        assert labels.tolist() == [0, 1]
        assert scores.tolist() == [[0.25, 0.75], [0.5, 0.5]]

    @pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
    def test_encodings(self, tmp_path, encoding):
        path = text(tmp_path, "label,prob_Bär,prob_Kühe\nBär,0.5,0.5\n", encoding=encoding)
        found = open_file(path)
        assert found.classes == ("Bär", "Kühe")
        assert any("read as" in note for note in found.notes)
        read_all(found)
        assert open_file(path, encoding=encoding).classes == ("Bär", "Kühe")
        with pytest.raises(ValueError, match="is not known"):
            open_file(path, encoding="klingon")

    def test_byte_order_mark(self, tmp_path):
        assert read_all(open_file(text(tmp_path, "\ufefflabel,prob_a\na,1\n")))[0].tolist() == [0]

    def test_npz_by_columns_and_compressed(self, tmp_path):
        _, probs, labels = classifier(100, 3)
        np.savez_compressed(tmp_path / "p.npz", labels=labels, probs=np.asfortranarray(probs))
        parts = [c.scores for c in open_file(tmp_path / "p.npz").chunks(7)]
        assert {len(part) for part in parts} == {7, 2}
        np.testing.assert_array_equal(np.concatenate(parts), probs)

    def test_npz_never_unpickles(self, tmp_path):
        np.savez(tmp_path / "p.npz", labels=np.array(["a", None], dtype=object), probs=np.ones((2, 1)))
        with pytest.raises(ValueError, match="could run code"):
            list(open_file(tmp_path / "p.npz").chunks())
        np.savez(tmp_path / "p.npz", labels=[0, 0], probs=np.ones((2, 1)), about=np.array([{}], dtype=object))
        assert read_all(open_file(tmp_path / "p.npz"))[0].tolist() == [0, 0]  # what is not asked for does no harm

    def test_npz_of_different_lengths(self, tmp_path):
        np.savez(tmp_path / "p.npz", labels=np.zeros(3, int), probs=np.ones((2, 1)))
        with pytest.raises(ValueError, match="as many rows each, got 'labels' 3 and 'probs' 2"):
            list(open_file(tmp_path / "p.npz").chunks())


class TestChunks:
    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
    def test_rows_at_a_time(self, tmp_path, suffix):
        _, probs, labels = classifier(100, 3)
        file = open_file(save(tmp_path / f"p{suffix}", labels, probs, row_group=30))
        chunks = list(file.chunks(16))
        assert max(map(len, chunks)) <= 16
        np.testing.assert_array_equal(np.concatenate([c.rows for c in chunks]), np.arange(1, 101))
        np.testing.assert_array_equal(np.concatenate([c.scores for c in chunks]), probs)
        with pytest.raises(ValueError, match="rows must be"):
            next(file.chunks(0))

    def test_other_columns_come_along(self, tmp_path):
        path = text(tmp_path, 'id,label,prob_a,prob_b,text\n1,a,1,0,"x,\ny"\n2,,0,1,z\n3,b,0,1,\n')
        (chunk,) = open_file(path, missing="drop").chunks(others=["text", "id"])
        assert chunk.others["text"].to_pylist() == ["x,\ny", ""]
        assert (chunk.rows.tolist(), chunk.n_dropped) == ([1, 3], 1)


class TestNames:
    def test_column_order_unlike_the_labels(self, tmp_path):
        path = text(tmp_path, "prob_dog,prob_cat,label\n0.1,0.9,cat\n0.8,0.2,dog\n")
        labels, scores = read_all(open_file(path))
        assert (scores.argmax(axis=1) == labels).all()
        path = text(tmp_path, "prob_10,prob_9,label\n0.1,0.9,9\n0.8,0.2,10\n")
        labels, scores = read_all(open_file(path))
        assert (scores.argmax(axis=1) == labels).all()

    @pytest.mark.parametrize(
        "kind", [pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.dictionary(pa.int8(), pa.string())]
    )
    def test_numbers_match_names_in_any_type(self, tmp_path, kind):
        labels = pa.array(["2", "7", "2"]).cast(kind) if "string" in str(kind) else pa.array([2, 7, 2], kind)
        pq.write_table(pa.table({"label": labels, "prob_7": [0.5] * 3, "prob_2": [0.5] * 3}), tmp_path / "p.parquet")
        assert read_all(open_file(tmp_path / "p.parquet"))[0].tolist() == [1, 0, 1]

    def test_numbers_of_named_classes_are_not_guessed(self, tmp_path):
        path = text(tmp_path, "label,prob_cat,prob_dog\n0,0.5,0.5\n1,0.5,0.5\n")
        with pytest.raises(ValueError, match=r"row 1 has label '0'.*pass classes"):
            list(open_file(path).chunks())
        labels, scores = read_all(open_file(path, classes=["dog", "cat"]))
        assert labels.tolist() == [0, 1]
        path = text(tmp_path, "label,prob_cat,prob_dog\ndog,0.25,0.75\n1,0.25,0.75\n")
        file = open_file(path, classes=["dog", "cat"])
        assert file.columns == ("prob_dog", "prob_cat")
        labels, scores = read_all(file)
        assert labels.tolist() == [0, 1]
        assert scores[0].tolist() == [0.75, 0.25]

    def test_names_of_numbered_columns(self, tmp_path):
        path = text(tmp_path, "label,prob_1,prob_0\ncat,0.25,0.75\n")
        file = open_file(path, classes=["cat", "dog"])
        labels, scores = read_all(file)
        assert (labels.tolist(), scores.tolist()) == ([0], [[0.75, 0.25]])

    def test_names_of_a_list(self, tmp_path):
        pq.write_table(pa.table({"label": ["dog"], "probs": [[0.25, 0.75]]}), tmp_path / "p.parquet")
        with pytest.raises(ValueError, match="row 1 has label 'dog', which is none of the 2 classes"):
            list(open_file(tmp_path / "p.parquet").chunks())
        assert read_all(open_file(tmp_path / "p.parquet", classes=["cat", "dog"]))[0].tolist() == [1]
        with pytest.raises(ValueError, match=r"classes has 3 names, but 'probs'.* has 2"):
            open_file(tmp_path / "p.parquet", classes=["cat", "dog", "owl"])

    def test_a_label_out_of_range(self, tmp_path):
        for value in (3, -1, 70_000):
            np.savez(tmp_path / "p.npz", labels=[0, value], probs=np.full((2, 3), 1 / 3))
            with pytest.raises(ValueError, match=f"row 2 has labels {value}, which is none of the 3 classes"):
                list(open_file(tmp_path / "p.npz").chunks())
        with pytest.raises(ValueError, match="class numbers go from 0 to 2"):
            list(open_file(tmp_path / "p.npz", classes=["a", "b", "c"]).chunks())

    @pytest.mark.parametrize("form", ["npz", "parquet"])
    def test_booleans_are_the_classes_0_and_1(self, tmp_path, form):
        """A truth column of a binary task is often boolean; text that says True is not."""
        _, probs, labels = classifier(40, 2)
        path = tmp_path / f"p.{form}"
        if form == "npz":
            np.savez(path, labels=labels.astype(bool), probs=probs)
        else:
            pq.write_table(pa.table({"label": labels.astype(bool), "prob_0": probs[:, 0], "prob_1": probs[:, 1]}), path)
        np.testing.assert_array_equal(read_all(open_file(path))[0], labels)
        named = text(tmp_path, "label,prob_0,prob_1\nTrue,0.5,0.5\n")
        with pytest.raises(ValueError, match="row 1 has label 'True', which is none of the 2 classes"):
            read_all(open_file(named))

    def test_names_beside_a_list_ask_for_its_order(self, tmp_path):
        np.savez(tmp_path / "p.npz", labels=np.array(["cat", "dog"]), probs=np.full((2, 2), 0.5))
        with pytest.raises(ValueError, match=r"classes 0 to 1.*pass classes"):
            read_all(open_file(tmp_path / "p.npz"))

    def test_a_float_label_is_no_class(self, tmp_path):
        pq.write_table(pa.table({"label": [0.5], "prob_0": [0.5], "prob_1": [0.5]}), tmp_path / "p.parquet")
        with pytest.raises(ValueError, match=r"row 1 has label 0.5"):
            list(open_file(tmp_path / "p.parquet").chunks())

    @pytest.mark.parametrize(
        "name",
        [
            'say "hi"',
            "<script>alert(1)</script>",
            "Ünïcøde 猫",
            "a, b",
            "x y",
            "l\nm",
            "prob_a",
            "None",
            "NA",
            "nan",
            "' OR 1=1",
            "%s{}",
        ],
    )
    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
    def test_odd_class_names(self, tmp_path, name, suffix):
        probs = np.array([[0.25, 0.75], [0.5, 0.5]])
        file = open_file(save(tmp_path / f"p{suffix}", [name, "plain"], probs, names=["plain", name]))
        assert file.classes == ("plain", name)
        assert read_all(file)[0].tolist() == [1, 0]

    def test_own_names_of_columns(self, tmp_path):
        path = text(tmp_path, "y,p1,p2\nb,0.25,0.75\n")
        with pytest.raises(ValueError, match=r"'y', 'p1', 'p2'.*prob_<class>.*columns .*kind "):
            open_file(path)
        with pytest.raises(ValueError, match="do not say what they hold: pass kind"):
            open_file(path, label="y", columns=["p1", "p2"])
        file = open_file(path, label="y", columns=["p1", "p2"], kind="probs", classes=["a", "b"])
        assert read_all(file)[0].tolist() == [1]
        with pytest.raises(ValueError, match="did you mean 'p1'"):
            open_file(path, columns=["p1x", "p2"], kind="probs")
        with pytest.raises(ValueError, match="label='yy' is no column"):
            open_file(path, label="yy", columns=["p1", "p2"], kind="probs")
        with pytest.raises(ValueError, match=r"which is none of the 2 classes.*pass columns and classes"):
            list(open_file(path, label="y", columns=["p1", "p2"], kind="probs").chunks())

    def test_what_is_ambiguous_is_asked(self, tmp_path):
        path = text(tmp_path, "label,target,prob_a\na,a,1\n")
        with pytest.raises(ValueError, match=r"say which holds the labels with label$"):
            open_file(path)
        assert open_file(path, label="target").others == ("label",)
        path = text(tmp_path, "label,prob_a,prob_b,logit_a,logit_b\na,0.5,0.5,3,3\n")
        with pytest.raises(ValueError, match="kind='probs' or kind='logits'"):
            open_file(path)
        assert open_file(path, kind="logits").columns == ("logit_a", "logit_b")
        path = text(tmp_path, "label,prob_a,prob_a\na,0.5,0.5\n")
        with pytest.raises(ValueError, match="several columns called 'prob_a'"):
            open_file(path)
        path = text(tmp_path, "label,probs\na,[0.5]\n")
        with pytest.raises(ValueError, match="must hold a list in each row"):
            open_file(path)

    def test_prob_columns_win_over_confidence(self, tmp_path):
        file = open_file(text(tmp_path, "label,prediction,confidence,prob_a,prob_b\na,b,junk,0.5,0.5\n"))
        assert file.kind == "probs"
        assert "not looked at" in file.notes[0]
        list(file.chunks())
        assert open_file(file.path, kind="confidence").columns == ("prediction", "confidence")

    def test_no_labels(self, tmp_path):
        file = open_file(text(tmp_path, "prob_a,prob_b\n0.5,0.5\n"))
        assert len(next(file.chunks(labels=False))) == 1
        with pytest.raises(ValueError, match=r"no column of labels.*Name it with label$"):
            list(file.chunks())


class TestConfidence:
    @pytest.mark.parametrize(
        ("label", "prediction"),
        [
            (["a", "b", "a"], ["a", "a", "b"]),
            ([1001, -5, 1001], [1001, 1001, -5]),
            ([1.0, 0.0, 1.0], ["1", "1", "0"]),
            ([True, False, True], ["True", "True", "False"]),
        ],
    )
    def test_labels_and_predictions_meet_by_name(self, tmp_path, label, prediction):
        table = pa.table({"label": label, "prediction": prediction, "confidence": [0.5, 0.6, 0.7]})
        pq.write_table(table, tmp_path / "p.parquet")
        file = open_file(tmp_path / "p.parquet")
        assert (file.kind, file.classes) == ("confidence", None)
        (chunk,) = file.chunks()
        assert (chunk.labels == chunk.predictions).tolist() == [True, False, False]
        assert len(chunk.classes) == 2

    def test_new_classes_in_later_chunks(self, tmp_path):
        path = text(tmp_path, "label,prediction,confidence\n" + "".join(f"{i},c{i},0.5\n" for i in range(50)))
        seen = [(c.labels, c.predictions) for c in open_file(path).chunks(3)]
        assert len({int(v) for pair in seen for part in pair for v in part}) == 100

    def test_given_classes_are_all(self, tmp_path):
        path = text(tmp_path, "label,prediction,confidence\na,b,0.5\nc,b,0.5\n")
        with pytest.raises(ValueError, match="row 2 has label 'c'"):
            list(open_file(path, classes=["a", "b"]).chunks())

    def test_a_missing_word_may_be_a_class(self, tmp_path):
        path = text(tmp_path, "label,prediction,confidence\nNA,DE,0.5\nDE,DE,0.5\n")
        with pytest.raises(ValueError, match=r"1 of 2 rows .*name of a class, pass classes\)"):
            list(open_file(path).chunks())
        (chunk,) = open_file(path, classes=["DE", "NA"]).chunks()
        assert chunk.labels.tolist() == [1, 0]

    def test_confidence_out_of_range(self, tmp_path):
        path = text(tmp_path, "label,prediction,confidence\na,a,0.5\na,a,97\n")
        with pytest.raises(ValueError, match=r"in \[0, 1\], but row 2 .* has 97 in column 'confidence'"):
            list(open_file(path).chunks())


class TestValues:
    def test_missing(self, tmp_path):
        rows = ["a,0.5,0.5", ",0.5,0.5", "b,,0.5", "b,nan,0.5", "a,NA,1", "b,0.25,0.75"]
        path = text(tmp_path, "\n".join(["label,prob_a,prob_b", *rows]))
        with pytest.raises(ValueError, match=r"4 of 6 rows .* first of them row 2 \(column 'label'.*missing='drop'"):
            list(open_file(path).chunks())
        with pytest.raises(ValueError, match=r"3 of 6 rows .* first of them row 3 \(column 'prob_a'\)"):
            list(open_file(path).chunks(labels=False))
        (chunk,) = open_file(path, missing="drop").chunks()
        assert (chunk.rows.tolist(), chunk.n_dropped) == ([1, 6], 4)
        assert chunk.labels.tolist() == [0, 1]

    def test_missing_in_parquet(self, tmp_path):
        columns = {"label": pa.array([0, None, 1, 1]), "probs": [[0.5, 0.5], [0.5, 0.5], None, [0.5, None]]}
        pq.write_table(pa.table(columns), tmp_path / "p.parquet")
        with pytest.raises(ValueError, match="3 of 4 rows"):
            list(open_file(tmp_path / "p.parquet").chunks())
        (chunk,) = open_file(tmp_path / "p.parquet", missing="drop").chunks()
        assert chunk.rows.tolist() == [1]

    def test_lists_of_different_lengths(self, tmp_path):
        pq.write_table(pa.table({"label": [0, 0], "probs": [[0.5, 0.5], [1.0]]}), tmp_path / "p.parquet")
        with pytest.raises(ValueError, match="row 2 has 1 values in 'probs', but there are 2 classes"):
            list(open_file(tmp_path / "p.parquet").chunks())

    def test_sums(self, tmp_path):
        path = text(tmp_path, "label,prob_a,prob_b\na,0.5,0.5\nb,0.5,0.4\n")
        with pytest.raises(ValueError, match=r"row 2 .* sum to 0.9, .*kind='logits'.*normalise=True"):
            list(open_file(path).chunks())
        (chunk,) = open_file(path, normalise=True).chunks()
        np.testing.assert_allclose(chunk.scores, [[0.5, 0.5], [5 / 9, 4 / 9]])
        assert chunk.n_rescaled == 1
        assert open_file(path, kind="logits").kind == "logits"
        assert read_all(open_file(path, kind="logits"))[1].tolist() == [[0.5, 0.5], [0.5, 0.4]]

    def test_out_of_range(self, tmp_path):
        path = text(tmp_path, "label,prob_a,prob_b\na,0.5,0.5\nb,-1,2\n")
        with pytest.raises(ValueError, match=r"row 2 .* has -1 in column 'prob_a'.*kind='logits'"):
            list(open_file(path).chunks())
        with pytest.raises(ValueError, match=r"row 2 .* has -1"):
            list(open_file(path, normalise=True).chunks())
        path = text(tmp_path, "label,logit_a,logit_b\na,0.5,inf\n")
        with pytest.raises(ValueError, match=r"logits must be finite, but row 1 .* has inf in column 'logit_b'"):
            list(open_file(path).chunks())
        path = text(tmp_path, "label,prob_a,prob_b\na,0,0\n")
        with pytest.raises(ValueError, match="all 0 cannot be rescaled, but row 1"):
            list(open_file(path, normalise=True).chunks())
        with pytest.raises(ValueError, match=r"rescales probabilities, but .* holds logits"):
            open_file(path, kind="logits", normalise=True)

    def test_percentages_and_counts_are_told_how_to_rescale(self, tmp_path):
        path = text(tmp_path, "label,prob_a,prob_b\na,80,20\n")
        with pytest.raises(ValueError, match=r"80 in column 'prob_a'.*percentages.*normalise=True"):
            read_all(open_file(path))
        np.testing.assert_allclose(read_all(open_file(path, normalise=True))[1], [[0.8, 0.2]])
        with pytest.raises(ValueError, match="'80%' in column 'prob_a', which is no number"):
            read_all(open_file(text(tmp_path, "label,prob_a,prob_b\na,80%,20%\n")))

    def test_one_column_and_the_other_class(self, tmp_path):
        path = text(tmp_path, "label,prob_1\n1,0.75\n0,0.25\n")
        with pytest.raises(ValueError, match=r"row 2 has label '0', .*only the class '1'.*1 - p and p"):
            read_all(open_file(path))

    def test_one_column_of_a_binary_task(self, tmp_path):
        path = text(tmp_path, "label,prob_1\n1,0.5\n")
        with pytest.raises(ValueError, match="two columns are needed, 1 - p and p"):
            list(open_file(path).chunks())

    def test_no_number(self, tmp_path):
        path = text(tmp_path, "label,prob_a,prob_b\na,0.5,0.5\na,high,0.5\n")
        with pytest.raises(ValueError, match="row 2 has 'high' in column 'prob_a', which is no number"):
            list(open_file(path).chunks())
        pq.write_table(pa.table({"label": [0], "prob_0": pa.array([None], pa.float32())}), tmp_path / "p.parquet")
        with pytest.raises(ValueError, match="missing"):
            list(open_file(tmp_path / "p.parquet").chunks())


class TestBrokenFiles:
    def test_not_there(self, tmp_path):
        text(tmp_path, "x", "predictions.csv")
        with pytest.raises(FileNotFoundError, match=r"did you mean 'predictions.csv'"):
            open_file(tmp_path / "predictoins.csv")
        (tmp_path / "empty").mkdir()
        with pytest.raises(ValueError, match=r"folder without predictions.parquet and without tables"):
            open_file(tmp_path / "empty")

    def test_not_what_its_name_says(self, tmp_path):
        for name in ("p.parquet", "p.npz", "p.xlsx", "p.csv.gz", "p.csv.zip", "p.csv.xz"):
            with pytest.raises(ValueError, match=r"no readable|is it complete"):
                open_file(text(tmp_path, "nothing of the kind", name))
        with pytest.raises(ValueError, match=r"pass a .csv, .tsv, .jsonl, .parquet, .feather, .orc, .xlsx"):
            open_file(text(tmp_path, "x", "p.doc"))

    def test_cut_off(self, tmp_path):
        _, probs, labels = classifier(5000, 3)
        for name in ("p.parquet", "p.npz"):
            path = save(tmp_path / name, labels, probs)
            path.write_bytes(path.read_bytes()[:-3000])
            with pytest.raises(ValueError, match="is it complete"):
                list(open_file(path).chunks())
        whole = gzip.compress(save(tmp_path / "p.csv", labels, probs).read_bytes())
        (tmp_path / "p.csv.gz").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match="is it complete"):
            list(open_file(tmp_path / "p.csv.gz").chunks())

    def test_empty(self, tmp_path):
        with pytest.raises(ValueError, match="is empty"):
            open_file(text(tmp_path, ""))
        with pytest.raises(ValueError, match="is empty"):
            open_file(text(tmp_path, "\n\n"))
        for content in ("label,prob_a", "label,prob_a\n", "label,prob_a\r\n"):
            assert list(open_file(text(tmp_path, content)).chunks()) == []
        pq.write_table(
            pa.table({"label": pa.array([], pa.int64()), "probs": pa.array([], pa.list_(pa.float64()))}),
            tmp_path / "p.parquet",
        )
        with pytest.raises(ValueError, match="has no rows"):
            open_file(tmp_path / "p.parquet")

    def test_a_row_with_too_few_cells(self, tmp_path):
        path = text(tmp_path, "label,prob_a,prob_b\na,0.5,0.5\na,1\n")
        with pytest.raises(ValueError, match=r"cannot be read as a table.*Expected 3 columns, got 2"):
            list(open_file(path).chunks())

    def test_no_line_of_names(self, tmp_path):
        with pytest.raises(ValueError, match="put a line of column names above"):
            open_file(text(tmp_path, "a,0.5,0.5\nb,0.3,0.7\n"))

    def test_an_endless_cell(self, tmp_path):
        path = text(tmp_path, f'label,prob_a,text\na,1,x\na,1,"{"x" * 2**24}"\n')
        with pytest.raises(ValueError, match=r"a row of .* takes more than 4\.1 MB: close a quotation mark"):
            list(open_file(path).chunks())

    def test_arrays_of_another_shape(self, tmp_path):
        np.savez(tmp_path / "a.npz", labels=np.zeros((4, 1), int), probs=np.full((4, 2), 0.5))
        with pytest.raises(ValueError, match=r"matrix of one column.*labels.ravel\(\)"):
            open_file(tmp_path / "a.npz")
        np.savez(tmp_path / "b.npz", labels=np.zeros(4, int), probs=np.full((4, 1, 2), 0.5))
        with pytest.raises(ValueError, match=r"'probs' of .* \[4, 1, 2\]: .*\[N, K\]"):
            open_file(tmp_path / "b.npz")
        np.savez(tmp_path / "c.npz", labels=np.zeros(4, int), probs=np.full((4, 2), 0.5), weights=np.zeros((2, 2, 2)))
        assert open_file(tmp_path / "c.npz").others == ()  # other arrays may have any shape
        np.savez(tmp_path / "d.npz")
        with pytest.raises(ValueError, match="its columns are none"):
            open_file(tmp_path / "d.npz")

    def test_one_hot_labels(self, tmp_path):
        np.savez(tmp_path / "p.npz", labels=np.eye(2), probs=np.eye(2))
        with pytest.raises(ValueError, match="one class is wanted"):
            open_file(tmp_path / "p.npz")

    def test_arguments(self, tmp_path):
        path = text(tmp_path, "label,prob_a\na,1\n")
        for bad in ({"kind": "prob"}, {"missing": "skip"}, {"classes": ["a", "a"]}, {"classes": []}):
            with pytest.raises(ValueError, match=next(iter(bad))):
                open_file(path, **bad)
        for bad in ({"classes": "ab"}, {"columns": "prob_a"}, {"normalise": 1}):
            with pytest.raises(TypeError):
                open_file(path, **bad)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """One row group as large as the file, and no more of it in memory than some chunks."""

    def peak(n):
        zeros, sure = np.zeros(n, np.int64), np.random.default_rng(0).random(n)
        table = pa.table({"label": zeros, "prediction": zeros, "confidence": sure})
        pq.write_table(table, tmp_path / "p.parquet", row_group_size=n)
        del table
        largest, before = 0, pa.total_allocated_bytes()
        for chunk in open_file(tmp_path / "p.parquet").chunks(1 << 14):
            assert len(chunk) <= 1 << 14
            largest = max(largest, pa.total_allocated_bytes() - before)
        return largest

    small, large = peak(200_000), peak(2_000_000)
    assert large < small + 2e6


class TestShards:
    def test_a_folder_and_a_pattern(self, tmp_path):
        _, probs, labels = classifier(90, 3)
        whole = open_file(save(tmp_path / "whole.parquet", labels, probs))
        folder = tmp_path / "shards"
        folder.mkdir()
        for k in range(3):
            save(folder / f"part-{k}.parquet", labels[30 * k : 30 * k + 30], probs[30 * k : 30 * k + 30])
        for path in (folder, folder / "part-*.parquet"):
            file = open_file(path)
            assert file.n_rows == 90
            for mine, other in zip(read_all(file), read_all(whole), strict=True):
                np.testing.assert_array_equal(mine, other)
            assert np.concatenate([c.rows for c in file.chunks()]).tolist() == list(range(1, 91))

    def test_a_bad_value_is_named_by_its_file_and_its_row_there(self, tmp_path):
        text(tmp_path, "label,prob_a,prob_b\na,0.5,0.5\nb,0.5,0.5\n", "1.csv")
        text(tmp_path, "label,prob_a,prob_b\na,0.5,0.5\nb,2,-1\n", "2.csv")
        with pytest.raises(ValueError, match=r"row 2 of '.*2.csv' has 2 in column 'prob_a'"):
            list(open_file(tmp_path).chunks())


def test_the_probability_of_one_class(tmp_path):
    file = open_file(text(tmp_path, "y_true,y_prob\n1,0.75\n0,0.125\n"))
    labels, scores = read_all(file)
    assert (file.kind, file.classes, file.label) == ("probs", ("0", "1"), "y_true")
    assert labels.tolist() == [1, 0]
    assert scores.tolist() == [[0.25, 0.75], [0.875, 0.125]]
    named = open_file(text(tmp_path, "y_true,y_prob\nyes,0.75\nno,0.5\n"), classes=["no", "yes"])
    assert read_all(named)[0].tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"row 1 of .* has 75 in column 'y_prob'"):
        read_all(open_file(text(tmp_path, "y_true,y_prob\n1,75\n")))


def test_json_lines_and_names_with_other_marks(tmp_path):
    lines = '{"label": "a", "probs": [0.25, 0.75]}\n{"label": "b", "probs": [0.5, 0.5]}\n'
    assert read_all(open_file(text(tmp_path, lines, "p.jsonl"), classes=["b", "a"]))[0].tolist() == [1, 0]
    marks = open_file(text(tmp_path, "label,prob_a|b|c|d,prob_e\ne,0.5,0.5\n"))
    assert marks.classes == ("a|b|c|d", "e")


# Labels that are written in several ways


def test_one_name_for_a_class_in_evaluate_too(tmp_path):
    rows = ["1,0.1,0.9", "1.0,0.1,0.9", "0,0.1,0.9", " 0.0,0.9,0.1"] * 9
    path = tmp_path / "p.csv"
    path.write_text("\n".join(["label,prob_0,prob_1", *rows]))
    result = evaluate_file(path)
    assert result.accuracy.value == 0.75
    assert any("'1' and '1.0' are one class" in note for note in result.notes)
    done = calibrate_file(path, path, tmp_path / "o.csv")
    assert any("'1' and '1.0' are one class" in note for note in done.notes)
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    rows = [f"{composed},{decomposed},0.9", f"{decomposed},{composed},0.8", "thé,thé,0.7"]
    path.write_text("\n".join(["label,prediction,confidence", *rows]), encoding="utf-8")
    result = evaluate_file(path)
    assert result.classes == (composed, "thé")
    assert result.accuracy.value == 1


def test_bytes_and_large_integers_are_names(tmp_path):
    big = 2**53
    table = {"label": pa.array([b"high", b"low"], pa.binary()), "prediction": ["high", "low"], "confidence": [0.9, 0.8]}
    pq.write_table(pa.table(table), tmp_path / "b.parquet")
    assert evaluate_file(tmp_path / "b.parquet").classes == ("high", "low")
    lines = [f'{{"label": {big + k % 2}, "prediction": {big + k % 2}, "confidence": 0.9}}' for k in range(4)]
    (tmp_path / "j.jsonl").write_text("\n".join([*lines, '{"label": 1.5, "prediction": 1.5, "confidence": 1}']))
    assert evaluate_file(tmp_path / "j.jsonl").classes == (str(big), str(big + 1), "1.5")


def test_unused_categories_are_no_classes(tmp_path):
    label = pd.Categorical(["a", "a", "b", "b"] * 9, categories=["unused", "a", "b"])
    path = tmp_path / "c.parquet"
    high = np.array([0.9, 0.9, 0.9, 0.1] * 9)
    pd.DataFrame({"label": label, "prob_a": high, "prob_b": 1 - high}).to_parquet(path)
    assert evaluate_file(path).accuracy.value == 0.75
    assert calibrate_file(path, path, tmp_path / "o.parquet").n_rows == 36
    pd.DataFrame({"label": label, "prediction": label, "confidence": 0.9}).to_parquet(path)
    assert evaluate_file(path).classes == ("a", "b")


def test_class_names_of_an_npz_file_are_different(tmp_path):
    path = tmp_path / "p.npz"
    np.savez(path, label=[0, 1], probs=np.eye(2), classes=np.array(["a", "a"]))
    with pytest.raises(ValueError, match="'a' twice"):
        evaluate_file(path)


@pytest.mark.parametrize("rows", [3, 100])
def test_large_integers_with_gaps_stay_exact_in_npz(tmp_path, rows, monkeypatch):
    monkeypatch.setattr("vicinal.predictions.predictions_file._rows_at_once", lambda n: rows)
    ids = pa.array([2**53 + 1, 2**53 + 3, 5, None, 7, 2**60 + 1], pa.int64())
    probs = {"prob_a": [0.9, 0.9, 0.9, 0.1, 0.9, 0.1], "prob_b": [0.1, 0.1, 0.1, 0.9, 0.1, 0.9]}
    pq.write_table(pa.table({"id": ids, "label": ["a", "a", "b", "b", "a", "b"], **probs}), tmp_path / "p.parquet")
    calibrate_file(tmp_path / "p.parquet", tmp_path / "p.parquet", tmp_path / "o.npz")
    written = np.load(tmp_path / "o.npz")["id"].tolist()
    assert written == ["9007199254740993", "9007199254740995", "5", "", "7", "1152921504606846977"]


def test_masked_values_are_not_passed_over():
    probs = np.ma.array([[0.9, 0.1], [0.2, 0.8]], mask=[[False, False], [True, True]])
    with pytest.raises(ValueError, match="probs has 2 masked values"):
        evaluate([0, 1], probs=probs)
    with pytest.raises(ValueError, match="labels has 1 masked value:"):
        evaluate(np.ma.array([0, 1], mask=[False, True]), probs=probs.data)
