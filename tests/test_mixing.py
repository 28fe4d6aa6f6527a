from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal import mixing
from vicinal.mixing import PairPlan


def loop_mix(a, b, lam):
    """λ·a + (1 − λ)·b, one number at a time, in Python floats."""
    flat = zip(a.flatten(1), b.flatten(1), lam, strict=True)
    rows = [[w * float(p) + (1 - w) * float(q) for p, q in zip(x, y, strict=True)] for x, y, w in flat]
    return torch.tensor(rows, dtype=torch.float64).view(a.shape)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 1000))
def test_mix_against_loops(n, d, seed):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, d, generator=g)
    lam = torch.rand(n, generator=g)
    torch.testing.assert_close(mixing.mix(a, b, lam).double(), loop_mix(a, b, lam.tolist()), atol=1e-6, rtol=1e-5)
    partner = torch.randperm(n, generator=g)
    expected = loop_mix(a, a[partner], lam.tolist())
    torch.testing.assert_close(mixing.mix_rows(a, partner, lam).double(), expected, atol=1e-6, rtol=1e-5)


@given(st.integers(1, 5), st.integers(2, 4), st.integers(0, 1000))
def test_weighted_rows_against_loops(n, k, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, 3, generator=g, dtype=torch.float64)
    partners = torch.stack([torch.randperm(n, generator=g) for _ in range(k)], 1)
    weights = torch.rand(n, k, generator=g, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for row in range(n):
        for j in range(k):
            expected[row] += weights[row, j] * x[partners[row, j]]
    torch.testing.assert_close(mixing.weighted_rows(x, partners, weights), expected)


def test_lambda_weights_the_first_sample():
    a, b = torch.zeros(2, 3), torch.ones(2, 3)
    assert torch.equal(mixing.mix(a, b, 1.0), a)
    assert torch.equal(mixing.mix(a, b, 0.0), b)
    assert torch.equal(mixing.mix(a, b, torch.tensor([1.0, 0.0])), torch.tensor([[0.0] * 3, [1.0] * 3]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_half_types_are_computed_in_float32_and_rounded_once(dtype):
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 4, 100, generator=g).to(dtype)
    lam = torch.rand(4, generator=g)
    mixed = mixing.mix(a, b, lam)
    assert mixed.dtype == dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    expected = torch.lerp(b.to(wide), a.to(wide), lam.to(wide)[:, None]).to(dtype)
    assert torch.equal(mixed, expected)


def test_results_are_fresh_and_inputs_untouched():
    x, partner = torch.randn(4, 3), torch.tensor([1, 0, 3, 2])
    x0 = x.clone()
    first = mixing.mix_rows(x, partner, 0.5)
    kept = first.clone()
    second = mixing.mix_rows(x, partner, 0.1)
    assert torch.equal(x, x0)
    assert torch.equal(first, kept), "a later call must not overwrite an earlier result"
    assert first.data_ptr() != second.data_ptr()
    identity = mixing.mix_rows(x, partner, 1.0)
    assert torch.equal(identity, x)
    assert identity.data_ptr() != x.data_ptr()


def test_gradients_flow_to_both_rows():
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    lam = torch.tensor([0.2, 0.5, 1.0], dtype=torch.float64)
    torch.autograd.gradcheck(lambda t: mixing.mix_rows(t, torch.tensor([1, 2, 0]), lam), (x,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mixing.mix(torch.zeros(2, 3), torch.zeros(3, 2), 0.5), "one shape"),
        (lambda: mixing.mix(torch.zeros(2, dtype=torch.int64), torch.zeros(2), 0.5), "floating.*int64"),
        (lambda: mixing.mix_rows(torch.zeros(2, dtype=torch.uint8), torch.arange(2), 0.5), "uint8"),
        (lambda: mixing.mix_rows(torch.zeros(3, 2), torch.arange(3), torch.rand(2)), r"shape \[3\], got \[2\]"),
        (lambda: mixing.mix(torch.zeros(2), torch.zeros(2).double(), 0.5), "one shape and type.*float32.*float64"),
        (lambda: mixing.paste(torch.zeros(1, 2, 2), torch.zeros(1, 3, 3), torch.zeros(4)), "one shape"),
        (
            lambda: mixing.paste_rows(torch.zeros(3, 2, 2), torch.arange(3), torch.zeros(1, 4)),
            r"\[3, 4\], got \[1, 4\]",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def loop_box(lam, cy, cx, height, width):
    """The box of the published code: half a side, by integer division, on either side of the centre."""
    ratio = (1 - lam) ** 0.5
    h, w = int(height * ratio), int(width * ratio)
    clip = lambda v, size: max(0, min(size, v))  # noqa: E731
    top, bottom = clip(cy - h // 2, height), clip(cy + h // 2, height)
    return [top, clip(cx - w // 2, width), bottom, clip(cx + w // 2, width)]


@given(st.floats(0, 1), st.integers(1, 9), st.integers(1, 9), st.data())
def test_boxes_against_loops(lam, height, width, data):
    cy, cx = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    drawn = torch.tensor([lam], dtype=torch.float64), torch.tensor([cy]), torch.tensor([cx])
    box = mixing.cut_boxes(*drawn, height=height, width=width)
    assert box[0].tolist() == loop_box(lam, cy, cx, height, width)
    top, left, bottom, right = box[0].tolist()
    inside = sum(1 for y in range(height) for x in range(width) if top <= y < bottom and left <= x < right)
    share = mixing.box_share(box, height=height, width=width)
    assert share.item() == pytest.approx(inside / (height * width))
    both, real = mixing.cut(*drawn, height=height, width=width)
    assert torch.equal(both, box)
    assert torch.equal(real, (1 - share).float())


def test_an_odd_side_loses_a_pixel_as_published():
    lam = torch.tensor([1 - (5 / 8) ** 2], dtype=torch.float64)  # a side of 5 in an image of 8
    box = mixing.cut_boxes(lam - 1e-9, torch.tensor([4]), torch.tensor([4]), height=8, width=8)
    assert box.tolist() == [[2, 2, 6, 6]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_boxes_of_weights_in_any_type(dtype):
    lam = torch.tensor([0.75, 0.5, 1.0], dtype=dtype)  # exact in each of them
    centres = torch.tensor([4, 1, 7])
    expected = mixing.cut_boxes(lam.double(), centres, centres, height=8, width=8)
    assert torch.equal(mixing.cut_boxes(lam, centres, centres, height=8, width=8), expected)


@given(st.integers(1, 4), st.integers(0, 1000))
def test_paste_against_loops(n, seed):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, 2, 4, 5, generator=g)
    corners = torch.stack([torch.randint(0, 5, (n, 2), generator=g), torch.randint(0, 6, (n, 2), generator=g)], 2)
    corners = corners.sort(1).values
    boxes = torch.stack([corners[:, 0, 0], corners[:, 0, 1], corners[:, 1, 0], corners[:, 1, 1]], 1)
    expected = a.clone()
    for row, (top, left, bottom, right) in enumerate(boxes.tolist()):
        for y in range(top, min(bottom, 4)):
            for x in range(left, min(right, 5)):
                expected[row, :, y, x] = b[row, :, y, x]
    assert torch.equal(mixing.paste(a, b, boxes), expected)
    partner = torch.randperm(n, generator=g)
    assert torch.equal(mixing.paste_rows(a, partner, boxes), mixing.paste(a, a[partner], boxes))
    one = boxes[0]
    assert torch.equal(mixing.paste(a, b, one), mixing.paste(a, b, one.expand(n, 4)))
    assert torch.equal(mixing.paste_rows(a, partner, one), mixing.paste(a, a[partner], one))


def test_a_plan_combines_each_row_with_its_partner():
    x = torch.randn(3, 4)
    plan = PairPlan(torch.tensor([0.3, 0.6, 0.9]), torch.tensor([2, 0, 1]))
    for i, (lam, j) in enumerate([(0.3, 2), (0.6, 0), (0.9, 1)]):
        torch.testing.assert_close(plan.combine(x)[i], lam * x[i] + (1 - lam) * x[j])
    with pytest.raises(ValueError, match="lam must be a number or have shape"):
        plan.combine(torch.cat([x, x]))  # a doubled batch is never guessed from its length
    torch.testing.assert_close(plan.weights.sum(1), torch.ones(3))
    assert plan.partners.tolist() == [[0, 2], [1, 0], [2, 1]]


def test_plans_are_frozen():
    plan = PairPlan(torch.ones(2), torch.arange(2))
    with pytest.raises(AttributeError):
        plan.lam = torch.zeros(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_paste_rows_alike_for_every_type_layout_and_gradient(dtype):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 5, 7, generator=g).to(dtype)
    boxes = torch.tensor([[0, 0, 5, 7], [1, 2, 1, 4], [2, 3, 5, 6], [0, 0, 1, 1], [4, 6, 5, 7], [1, 1, 3, 6]])
    partner = torch.tensor([3, 5, 0, 1, 4, 2])
    before = x.clone()
    pasted = mixing.paste_rows(x, partner, boxes)
    assert torch.equal(pasted, mixing.paste(x, x[partner], boxes))
    assert torch.equal(x, before)
    for other in (x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3).contiguous().transpose(2, 3)):
        assert torch.equal(mixing.paste_rows(other, partner, boxes), pasted)
    leaf = x.clone().requires_grad_()
    with_gradient = mixing.paste_rows(leaf, partner, boxes)
    assert torch.equal(with_gradient, pasted)
    with_gradient.sum().backward()
    assert leaf.grad.sum() == x.numel()
    with torch.no_grad():
        assert torch.equal(mixing.paste_rows(leaf, partner, boxes), pasted)
