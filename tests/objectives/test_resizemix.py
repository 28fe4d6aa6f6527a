"""ResizeMix: the image and its label by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import interpolate

from vicinal import ResizeMix
from vicinal.objectives.resizemix import ResizePlan


def test_the_box_holds_the_whole_partner_and_the_rest_is_left():
    x = torch.rand(3, 2, 8, 8)
    plan = ResizePlan(torch.full((3,), 1 - 12 / 64), torch.tensor([1, 2, 0]), box=torch.tensor([2, 1, 6, 4]))
    mixed = ResizeMix().mix(x, plan)
    for i in range(3):
        small = interpolate(x[(i + 1) % 3][None], size=(4, 3), mode="bilinear", antialias=True)[0]
        for row in range(8):
            for column in range(8):
                inside = 2 <= row < 6 and 1 <= column < 4
                expected = small[:, row - 2, column - 1] if inside else x[i, :, row, column]
                torch.testing.assert_close(mixed[i, :, row, column], expected)


def test_the_label_has_the_share_that_is_left_and_sizes_lie_in_the_range():
    x, y = torch.rand(4, 3, 20, 30), torch.arange(4)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        plan = ResizeMix(smallest=0.2, largest=0.5).draw(None, x, y, generator=generator)
        top, left, bottom, right = plan.box.tolist()
        assert 0 <= top < bottom <= 20
        assert 0 <= left < right <= 30
        assert 4 <= bottom - top <= 10
        assert 6 <= right - left <= 15
        assert plan.lam.tolist() == pytest.approx([1 - (bottom - top) * (right - left) / 600] * 4)


@pytest.mark.parametrize("size", [(5, 5), (12, 7), (1, 1), (9, 12)])
def test_the_partner_is_resized_as_torch_does_with_antialiasing(size):
    x, (height, width) = torch.rand(2, 3, 12, 12), size
    plan = ResizePlan(torch.full((2,), 0.5), torch.tensor([1, 0]), box=torch.tensor([0, 0, height, width]))
    want = interpolate(x.flip(0), size=size, mode="bilinear", antialias=True)
    torch.testing.assert_close(ResizeMix().mix(x, plan)[..., :height, :width], want)


def test_autocast_does_not_round_the_images():
    x = torch.rand(2, 3, 12, 12)
    plan = ResizePlan(torch.full((2,), 0.5), torch.tensor([1, 0]), box=torch.tensor([1, 2, 8, 9]))
    want = ResizeMix().mix(x, plan)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ResizeMix().mix(x, plan), want)


def test_a_device_without_autocast():
    plan = ResizePlan(*(t.to("meta") for t in (torch.ones(2), torch.tensor([1, 0]))), box=torch.zeros(4, device="meta"))
    assert ResizeMix().mix(torch.rand(2, 3, 12, 12, device="meta"), plan).shape == (2, 3, 12, 12)


def test_bad_hyper_parameters_are_refused():
    with pytest.raises(ValueError, match="largest"):
        ResizeMix(smallest=0.5, largest=0.2)
