"""Images in folders and text as tokens, as models learn from them."""

import numpy as np
from mutant import mutant
from PIL import Image
from shaped_rows import PLUGIN, problem_of, refused, scene, with_torch

import desim
from desim.problem.data import examples
from desim.scenario.load import load


def folders(top, sizes=(4, 4), classes=("cat", "dog"), each=3, mode="RGB"):
    random, pixels = np.random.default_rng(0), []
    for name in classes:
        (top / name).mkdir(parents=True)
        for number in range(each):
            shape = (*sizes, 3) if mode == "RGB" else sizes
            one = random.integers(0, 256, shape).astype(np.uint8)
            pixels.append(one)
            Image.fromarray(one).save(top / name / f"{number}.png")
    return np.array(pixels)


def test_folders_of_images(tmp_path):
    found = folders(tmp_path / "i")
    problem = problem_of({"source": "images", "folder": str(tmp_path / "i")}, agents=1)
    whole = problem_of(
        {"source": "images", "folder": str(tmp_path / "i")}, agents=1, partition="contiguous"
    )
    assert problem.A.shape == (6, 3, 4, 4)
    assert np.array_equal(whole.A[:], np.moveaxis(found / 255.0, -1, 1).astype(np.float32))
    assert whole.b.tolist() == [0, 0, 0, 1, 1, 1]
    gray = {"source": "images", "folder": str(tmp_path / "i"), "channels": 1, "size": [2, 3]}
    assert problem_of(gray, agents=2).A.shape == (6, 1, 2, 3)


def test_folders_of_train_and_test_and_of_users(tmp_path):
    folders(tmp_path / "p" / "train", classes=("2", "10"), mode="L")
    folders(tmp_path / "p" / "test", classes=("2", "10"), mode="L", each=1)
    data = {"source": "images", "folder": str(tmp_path / "p")}
    refused("found labels 2 to 10, and none that is 0; allowed: .*`classes: 11`", data, agents=2)
    problem = problem_of(data | {"classes": 11}, agents=2, partition="contiguous")
    assert problem.A.shape == (6, 1, 4, 4)
    assert sorted(problem.b.tolist()) == [2, 2, 2, 10, 10, 10]
    assert sorted(problem.test_b.tolist()) == [2, 10]
    for user, each in (("ann", 2), ("bob", 3)):
        folders(tmp_path / "u" / user, each=each)
    data = {"source": "images", "folder": str(tmp_path / "u"), "levels": ["writer", "class"]}
    owned = problem_of(data, partition={"by": "writer"})
    assert owned.sites == ("ann", "bob")
    assert owned.rows.tolist() == [4, 6]
    assert owned.b.tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 1, 1]


def test_what_is_wrong_with_images_is_said(tmp_path):
    data = {"source": "images", "folder": str(tmp_path / "i")}
    refused(r"folder: .*i.* (does not exist|is no)", data, agents=2)
    folders(tmp_path / "i")
    (tmp_path / "i" / "eel").mkdir()
    refused(r"found no image in eel; allowed: images", data, agents=2)
    Image.fromarray(np.zeros((5, 4, 3), np.uint8)).save(tmp_path / "i" / "eel" / "0.png")
    refused(
        r"eel/0\.png has 5 x 4 pixels and cat/0\.png has 4 x 4; allowed.*size: \[", data, agents=2
    )
    assert problem_of(data | {"size": [4, 4]}, agents=2).A.shape == (7, 3, 4, 4)
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "i" / "eel" / "0.png")
    refused(r"eel/0\.png is L and cat/0\.png is RGB; allowed.*channels: 1 or 3", data, agents=2)
    (tmp_path / "i" / "eel" / "0.png").write_bytes(b"\x89PNG no image")
    refused(r"0\.png cannot be read as an image", data, agents=2)
    (tmp_path / "i" / "eel" / "0.png").rename(tmp_path / "i" / "eel" / "0.txt")
    refused(r"found '0\.txt' in eel; allowed: images", data, agents=2)
    refused(r"levels: found \['writer'\]; allowed", data | {"levels": ["writer"]}, agents=2)
    deep = data | {"levels": ["writer", "class"]}
    refused(r"found '0\.png' in cat; allowed: folders, one for each class", deep, agents=2)
    sixteen = np.zeros((4, 4), np.uint16)
    (tmp_path / "i" / "eel" / "0.txt").unlink()
    Image.fromarray(sixteen).save(tmp_path / "i" / "eel" / "0.png")
    refused(r"in mode I;16; allowed: images of 8 bits", data, agents=2)


# text


def test_windows_of_bytes(tmp_path):
    text = "to be or not to be, that is the question: é"
    (tmp_path / "a.txt").write_text(text, "utf-8")
    (tmp_path / "b.txt").write_text("whether 'tis nobler in the mind", "utf-8")
    data = {"source": "text", "folder": str(tmp_path), "length": 8}
    problem = problem_of(data, "bigrams", partition={"by": "file"})
    assert problem.sites == ("a", "b")
    code = text.encode()
    assert problem.rows.tolist() == [(len(code) - 1) // 8, 3]
    for row in range(problem.rows[0]):
        assert bytes(problem.A[row].astype(np.uint8)) == code[8 * row : 8 * row + 8]
        assert bytes(problem.b[row].astype(np.uint8)) == code[8 * row + 1 : 8 * row + 9]
    assert problem.dim == 256**2
    assert bytes(problem.A[problem.start[1]].astype(np.uint8)) == b"whether "
    one = problem_of(
        {"source": "text", "file": str(tmp_path / "a.txt"), "length": 8, "every": 3, "test": 0.2},
        "bigrams",
        agents=2,
    )
    assert isinstance(one.A.source.base, np.ndarray)
    assert len(one.A) + len(one.test_A) == -(-(len(code) - 8) // 3)
    twin = mutant(examples, "windows[1:]", "windows[:-1]")
    section = load(scene({"source": "text", "file": str(tmp_path / "a.txt"), "length": 8},
                         "bigrams", agents=1)).problem.data  # fmt: skip
    wrong = twin.text_windows(section)[0]
    assert not np.array_equal(wrong.inputs[:][:, 1:], wrong.labels[:][:, :-1])
    right = examples.text_windows(section)[0]
    assert np.array_equal(right.inputs[:][:, 1:], right.labels[:][:, :-1])


def test_words_and_characters_by_a_public_vocabulary(tmp_path):
    (tmp_path / "a.txt").write_text("the cat saw the dog", "utf-8")
    (tmp_path / "v.txt").write_text("cat\nthe\nsaw\n", "utf-8")
    data = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 4, "tokens": "words"}
    counted = problem_of(data, "bigrams", agents=1)
    assert counted.A[:].tolist() == [[4, 1, 3, 4]]  # cat, dog, saw, the
    assert counted.b[:].tolist() == [[1, 3, 4, 2]]
    listed = problem_of(data | {"vocabulary": str(tmp_path / "v.txt")}, "bigrams", agents=1)
    assert listed.A[:].tolist() == [[2, 1, 3, 2]]
    assert listed.b[:].tolist() == [[1, 3, 2, 0]]
    assert listed.dim == 4**2
    letters = problem_of(data | {"tokens": "characters", "length": 2}, "bigrams", agents=1)
    assert letters.loss.facts.classes == 1 + len(set("the cat saw the dog"))


def test_text_trains_and_predicts(tmp_path):
    (tmp_path / "a.txt").write_text("abcabc" * 40)
    data = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 6, "test": 0.2}
    section = scene(data, "bigrams", agents=4)
    section["algorithm"]["local"]["step"] = 5.0
    section["observe"] = {"metrics": ["loss", "accuracy"]}
    runs = [desim.run(section | {"engine": engine}) for engine in ("cohort", "agents")]
    assert np.array_equal(runs[0].model, runs[1].model)
    found = runs[0].metrics
    last = found[found["metric"] == "accuracy"]["value"].iloc[-1]
    assert last == 1.0


def test_text_trains_a_torch_module(tmp_path):
    (tmp_path / "a.txt").write_text("abcabc" * 40)
    data = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 6, "test": 0.2}
    section = with_torch(tmp_path, scene(data, "torch-tokens", agents=4))
    section["algorithm"]["local"]["step"] = 20.0
    section["observe"] = {"metrics": ["accuracy"]}
    runs = [desim.run(section | {"engine": engine}) for engine in ("cohort", "agents")]
    assert np.array_equal(runs[0].model, runs[1].model)
    assert runs[0].metrics["value"].iloc[-1] > 0.9


def test_what_is_wrong_with_text_is_said(tmp_path):
    (tmp_path / "a.txt").write_text("short")
    data = {"source": "text", "file": str(tmp_path / "a.txt"), "length": 5}
    refused(r"a\.txt has 5 bytes; allowed: more than length, 5", data, "bigrams", agents=1)
    (tmp_path / "a.txt").write_text("")
    refused(r"a\.txt is empty", data, "bigrams", agents=1)
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe broken")
    refused(r"cannot be read as text", data | {"tokens": "words"}, "bigrams", agents=1)
    (tmp_path / "c").mkdir()
    none = {"source": "text", "folder": str(tmp_path / "c"), "length": 5}
    refused(r"found no \.txt in", none, "bigrams", agents=1)
    refused(r"tokens bytes, which need none", data | {"vocabulary": PLUGIN}, "bigrams", agents=1)
    refused(r"labels of shape .* for model linear-scores", data | {"length": 2}, agents=1)
