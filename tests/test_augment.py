"""Rows that are changed while they are trained on, each as its address says."""

import numpy as np
import pytest
from mutant import mutant
from shaped_rows import kept, pictures, refused, scene, with_torch

import desim
from desim.errors import InputError
from desim.problem.kernels.gradients import batch_gradient
from desim.problem.models import augment
from desim.problem.models.augment import Augmentation, Place
from desim.scenario.build import build
from desim.scenario.load import load


def augmented(folder, changes, engine="cohort", **more):
    A, b = pictures(40)
    data = kept(folder / "a", A=A, b=b) | {"scale": "pixel", "test": 0.2}
    section = scene(data, agents=5, augment=changes) | {"engine": engine, **more}
    section["algorithm"]["local"]["batch"] = 3
    return section


EVERY = ["flip", {"crop": 1}, {"noise": 0.1}]


@pytest.mark.parametrize("changes", [*EVERY, EVERY], ids=str)
def test_augmentation_has_the_same_bits_everywhere(tmp_path, changes):
    runs = {
        engine: desim.run(augmented(tmp_path, changes, engine)) for engine in ("cohort", "agents")
    }
    assert np.array_equal(runs["cohort"].model, runs["agents"].model)
    for table in ("events", "metrics"):
        assert getattr(runs["cohort"], table).equals(getattr(runs["agents"], table))
    plain = desim.run(augmented(tmp_path, "none"))
    assert not np.array_equal(plain.model, runs["cohort"].model)
    assert np.array_equal(plain.model[0], runs["cohort"].model[0])


def test_images_of_files_train_a_torch_module(tmp_path):
    """With layers that draw by themselves, too."""
    section = with_torch(tmp_path, augmented(tmp_path, EVERY))
    section["problem"]["model"] = "torch-pixels"
    first, second = (desim.run(section | {"engine": engine}) for engine in ("cohort", "agents"))
    assert np.array_equal(first.model, second.model)
    assert not np.array_equal(first.model[0], first.model[-1])
    del section["problem"]["data"]["scale"]
    section["problem"]["augment"] = "none"
    with pytest.raises(InputError, match=r"type uint8.*problem\.data\.scale: pixel makes"):
        desim.run(section)


def test_a_row_alone_changes_as_beside_others():
    inputs = np.random.default_rng(0).random((3, 4, 2, 5, 6))
    changes = (Augmentation("flip"), Augmentation("crop", 2), Augmentation("noise", 0.1))
    agent, round_ = np.array([0, 7, 3]), np.array([2, 2, 5])
    row = np.arange(12).reshape(3, 4)

    def done(module, place, r=slice(None), h=slice(None)):
        part = inputs[r][:, h]
        return module.augmented(part, changes, Place(9, agent[r], round_[r], 1, place[r][:, h]))

    whole = done(augment, row)
    alone = [
        done(augment, row, slice(r, r + 1), slice(h, h + 1)) for r in range(3) for h in range(4)
    ]
    assert np.array_equal(np.concatenate(alone).reshape(whole.shape), whole)
    for more in ({"agent": 1}, {"round": 1}, {"row": 1}, {"seed": 1}, {"step": 1}):
        place = Place(9, agent, round_, 1, row)
        moved = place._replace(**{key: getattr(place, key) + one for key, one in more.items()})
        assert not np.array_equal(augment.augmented(inputs, changes, moved), whole)
    twin = mutant(augment, "place.row + KINDS", "np.arange(place.row.shape[1]) + KINDS")
    lone = done(twin, row, slice(1, 2), slice(2, 3))
    assert not np.array_equal(lone[0, 0], done(twin, row)[1, 2])


def test_what_flip_crop_and_noise_do():
    inputs = np.arange(1.0, 61.0).reshape(5, 6, 2)[:, :, None, :]  # 5 agents, 6 rows, 1 x 2 pixels
    place = Place(1, np.arange(5), np.zeros(5, int), 0, np.tile(np.arange(6), (5, 1)))
    turned = augment.augmented(inputs, (Augmentation("flip"),), place)
    same = (turned == inputs).all((2, 3))
    assert np.array_equal(turned[~same], inputs[~same][..., ::-1])
    assert 5 < same.sum() < 25  # of 30 fair coins, 3.7 standard deviations about 15
    large = np.ones((5, 6, 1, 4, 4))
    cropped = augment.augmented(large, (Augmentation("crop", 1),), place)
    rows, columns = cropped.max(-1).sum(-1), cropped.max(-2).sum(-1)
    assert set(rows.ravel()) == set(columns.ravel()) == {3.0, 4.0}
    assert np.array_equal(cropped.sum((-2, -1)), rows * columns)
    noisy = augment.augmented(large, (Augmentation("noise", 0.5),), place) - large
    # 480 normals: the deviation's standard error is 0.5 / sqrt(960) = 0.016
    assert abs(noisy.std() - 0.5) < 5 * 0.016


def test_what_is_measured_is_not_augmented(tmp_path):
    """The model at the start has the loss of plain rows; so has the gradient of the metric."""
    problems = [build(load(augmented(tmp_path, one))).problem for one in ("none", EVERY)]
    x = np.linspace(-1.0, 1.0, problems[0].dim)
    assert problems[0].objective(x) == problems[1].objective(x)
    assert np.array_equal(problems[0].total_gradient(x), problems[1].total_gradient(x))
    assert problems[0].accuracy(x) == problems[1].accuracy(x)
    assert problems[0].digest() == problems[1].digest()
    trained = [batch_gradient([1], x[None], 2, 1, 0, one.data) for one in problems]
    assert not np.array_equal(*trained)


def test_what_cannot_be_augmented_is_refused(tmp_path):
    A, b = pictures()
    data = kept(tmp_path / "a", A=A, b=b)
    text = r"augment: noise: found inputs of type uint8; allowed: real numbers"
    refused(text, data, agents=2, augment={"noise": 1})
    refused(r"found flip twice; allowed: once", data, agents=2, augment=["flip", "flip"])
    flat = kept(tmp_path / "b", A=A.reshape(24, -1), b=b)
    text = r"augment: crop: found inputs of shape \(24,\); allowed: images"
    refused(text, flat, agents=2, augment={"crop": 1})
    section = scene(flat, agents=2, augment="flip")
    del section["problem"]["model"]
    section["problem"]["loss"] = "softmax"
    with pytest.raises(InputError, match=r"augment: found flip with loss softmax; allowed: none"):
        load(section)
