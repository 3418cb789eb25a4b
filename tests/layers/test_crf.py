"""The CRF against enumeration of all tag sequences, finite differences, and pytorch-crf where it is installed."""

import importlib.util
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.layers.crf import CRF, FORBIDDEN, IGNORE_INDEX, allowed_transitions, continuations

some = settings(deadline=None, max_examples=25)
lengths_of_rows = st.lists(st.integers(0, 4), min_size=1, max_size=4)
seeds = st.integers(0, 10**6)
BIO = ["O", "B-A", "I-A", "B-C", "I-C"]
BIOES = ["O", "B-A", "I-A", "E-A", "S-A", "S-C"]
SCHEMES = {"iob1": BIO, "iob2": BIO, "bioes": BIOES}


def make(lengths, tags, seed, scheme=None, extra=0):
    """A CRF with random scores; emissions, labels and mask of rows with these lengths."""
    generator = torch.Generator().manual_seed(seed)
    crf = CRF(tags, None if scheme is None else allowed_transitions(SCHEMES[scheme], scheme))
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    time = max(1, *lengths, 1) + extra
    emissions = 2 * torch.randn(len(lengths), time, tags, generator=generator)
    labels = torch.randint(tags, (len(lengths), time), generator=generator)
    mask = torch.arange(time) < torch.tensor(lengths)[:, None]
    return crf, emissions, labels, mask


def score_by_hand(crf, emissions, tags, forbidden=FORBIDDEN):
    """The score of a tag sequence, part by part."""
    if not tags:
        return 0.0
    total = crf.start[tags[0]].item() + (0 if crf.allowed_starts[tags[0]] else forbidden)
    total += crf.end[tags[-1]].item() + (0 if crf.allowed_ends[tags[-1]] else forbidden)
    total += sum(emissions[place, tag].item() for place, tag in enumerate(tags))
    for before, after in itertools.pairwise(tags):
        total += crf.transitions[before, after].item()
        total += 0 if crf.allowed_transitions[before, after] else forbidden
    return total


def enumerate_paths(crf, emissions, length, forbidden=FORBIDDEN):
    """Every tag sequence with its score, best first."""
    paths = itertools.product(range(len(crf.start)), repeat=length)
    return sorted(((score_by_hand(crf, emissions, path, forbidden), path) for path in paths), reverse=True)


def log_sum(scores):
    scores = list(scores)
    most = max(scores)
    return most + math.log(sum(math.exp(score - most) for score in scores))


def pad_tags(path, time):
    return [*path, *[IGNORE_INDEX] * (time - len(path))]


@given(lengths_of_rows, st.integers(1, 4), seeds)
@some
def test_partition_and_score_are_those_of_enumeration(lengths, tags, seed):
    crf, emissions, labels, mask = make(lengths, tags, seed)
    labels = labels.masked_fill(~mask, IGNORE_INDEX)
    log_z = [log_sum(score for score, _ in enumerate_paths(crf, emissions[row], n)) for row, n in enumerate(lengths)]
    scores = [score_by_hand(crf, emissions[row], labels[row, :n].tolist()) for row, n in enumerate(lengths)]
    torch.testing.assert_close(crf.log_partition(emissions, mask), torch.tensor(log_z), rtol=0, atol=1e-5)
    torch.testing.assert_close(crf.score(emissions, labels, mask), torch.tensor(scores), rtol=0, atol=1e-5)
    losses = torch.tensor([z - score for z, score in zip(log_z, scores, strict=True)])
    torch.testing.assert_close(crf(emissions, labels, mask), losses, rtol=0, atol=1e-5)
    with torch.no_grad():  # another chain of operations
        torch.testing.assert_close(crf(emissions, labels, mask), losses, rtol=0, atol=1e-5)


@given(lengths_of_rows, st.integers(1, 4), seeds)
@some
def test_the_best_path_is_that_of_enumeration(lengths, tags, seed):
    crf, emissions, _, mask = make(lengths, tags, seed)
    found, scores = crf.decode(emissions, mask)
    for row, length in enumerate(lengths):
        score, path = enumerate_paths(crf, emissions[row], length)[0]
        assert found[row].tolist() == pad_tags(path, mask.shape[1])
        assert scores[row].item() == pytest.approx(score, abs=1e-5)


@given(lengths_of_rows, st.integers(1, 3), st.integers(1, 5), seeds)
@some
def test_the_n_best_paths_are_those_of_enumeration(lengths, tags, count, seed):
    crf, emissions, _, mask = make(lengths, tags, seed)
    found, scores = crf.decode_n_best(emissions, mask, count)
    for row, length in enumerate(lengths):
        paths = enumerate_paths(crf, emissions[row], length)[:count]
        best = [pad_tags(path, mask.shape[1]) for _, path in paths]
        assert found[row, : len(paths)].tolist() == best
        assert scores[row, : len(paths)].tolist() == pytest.approx([score for score, _ in paths], abs=1e-5)
        assert scores[row, len(paths) :].isneginf().all()


@given(lengths_of_rows, st.integers(1, 4), seeds)
@some
def test_marginals_are_those_of_enumeration(lengths, tags, seed):
    crf, emissions, _, mask = make(lengths, tags, seed)
    expected = torch.zeros_like(emissions)
    for row, length in enumerate(lengths):
        paths = enumerate_paths(crf, emissions[row], length)
        log_z = log_sum(score for score, _ in paths)
        for score, path in paths:
            for place, tag in enumerate(path):
                expected[row, place, tag] += math.exp(score - log_z)
    torch.testing.assert_close(crf.marginals(emissions, mask), expected, rtol=0, atol=1e-5)


@given(lengths_of_rows, st.integers(1, 4), seeds)
@some
def test_constrained_probabilities_are_those_of_enumeration(lengths, tags, seed):
    crf, emissions, labels, mask = make(lengths, tags, seed)
    allowed = torch.rand(emissions.shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    allowed |= labels[:, :, None] == torch.arange(tags)
    expected = []
    for row, length in enumerate(lengths):
        paths = enumerate_paths(crf, emissions[row], length)
        log_z = log_sum(score for score, _ in paths)
        inside = [each for each in paths if all(allowed[row, place, tag] for place, tag in enumerate(each[1]))]
        expected.append(math.exp(log_sum(score for score, _ in inside) - log_z))
    found = crf.constrained_probability(emissions, mask, allowed)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_what_is_impossible_has_the_probability_0():
    crf, emissions, _, mask = make([3, 2], 3, seed=1)
    nothing = torch.ones_like(emissions, dtype=torch.bool)
    nothing[0, 1] = False
    found = crf.constrained_probability(emissions, mask, nothing)
    assert found[0] == 0 and found[1] == pytest.approx(1)


@pytest.mark.parametrize("ends", [False, True], ids=["its tags", "its tags and ends"])
@given(seeds)
@some
def test_span_probabilities_are_those_of_enumeration(ends, seed):
    lengths = [4, 3, 1]
    crf, emissions, labels, mask = make(lengths, 5, seed)
    together = continuations(BIO)
    spans = [(0, 0, 2), (0, 1, 4), (0, 2, 3), (1, 1, 3), (1, 0, 3), (2, 0, 1)]
    expected = []
    for row, first, after in spans:
        paths = enumerate_paths(crf, emissions[row], lengths[row])
        log_z, own = log_sum(score for score, _ in paths), tuple(labels[row, first:after].tolist())
        inside = []
        for score, path in paths:
            right = path[first:after] == own
            if ends and first > 0:
                right &= not together[path[first - 1], own[0]]
            if ends and after < lengths[row]:
                right &= not together[own[-1], path[after]]
            inside += [score] * right
        expected.append(math.exp(log_sum(inside) - log_z))
    found = crf.span_probability(emissions, mask, labels, torch.tensor(spans), together if ends else None)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_continuations_are_words_of_one_span():
    names = {(BIO[one], BIO[two]) for one, two in continuations(BIO).nonzero().tolist()}
    assert names == {("B-A", "I-A"), ("I-A", "I-A"), ("B-C", "I-C"), ("I-C", "I-C")}


@pytest.mark.parametrize("scheme", [None, *SCHEMES])
@given(lengths_of_rows, seeds)
@settings(deadline=None, max_examples=8)
def test_gradients_are_those_of_enumeration(scheme, lengths, seed):
    """Torch differentiates the logsumexp of the scores of all sequences that are enumerated."""
    crf, emissions, labels, mask = make(lengths, len(SCHEMES[scheme or "iob1"]), seed, scheme)
    labels = crf.decode(emissions, mask)[0].roll(1, dims=0).clamp(min=0)  # other labels, which may be forbidden
    weights = torch.rand(len(lengths), generator=torch.Generator().manual_seed(seed)).double()

    def enumerated(emissions, transitions, start, end):
        losses = []
        for row, length in enumerate(lengths):
            if length == 0:
                losses.append(0 * start.sum())
                continue
            paths = torch.tensor(list(itertools.product(range(len(start)), repeat=length)))
            every = torch.cat((paths, labels[row, None, :length]))
            scores = start[every[:, 0]] + end[every[:, -1]] + emissions[row, torch.arange(length), every].sum(1)
            scores = scores + transitions[every[:, :-1], every[:, 1:]].sum(1)
            losses.append(scores[:-1].logsumexp(0) - scores[-1])
        return torch.stack(losses)

    emissions.requires_grad_()
    inputs = [emissions, *crf.parameters()]
    allowed = (crf.allowed_transitions, crf.allowed_starts, crf.allowed_ends)
    doubled = [each.double() for each in inputs]
    constrained = [each + FORBIDDEN * ~is_allowed for each, is_allowed in zip(doubled[1:], allowed, strict=True)]
    wanted = torch.autograd.grad(enumerated(doubled[0], *constrained) @ weights, inputs, allow_unused=True)
    found = torch.autograd.grad(crf(emissions, labels, mask).double() @ weights, inputs)
    for one, two, each in zip(found, wanted, inputs, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(each) if two is None else two, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_finite_differences():
    crf, emissions, labels, mask = make([5, 3, 0, 1], 3, seed=3, extra=2)
    emissions.requires_grad_()
    crf(emissions, labels, mask).sum().backward()
    step = 1e-2
    for tensor in (emissions, *crf.parameters()):
        flat, gradient = tensor.detach().view(-1), tensor.grad.view(-1)
        for place in range(0, len(flat), 3):
            losses = []
            for change in (step, -2 * step):
                flat[place] += change
                with torch.no_grad():
                    losses.append(crf(emissions, labels, mask).double().sum().item())
            flat[place] += step
            assert gradient[place].item() == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=2e-3)


@given(lengths_of_rows, st.integers(1, 3), seeds)
@some
def test_padding_changes_nothing(lengths, extra, seed):
    crf, emissions, labels, mask = make(lengths, 3, seed)
    longer = torch.cat((emissions, torch.full((len(lengths), extra, 3), torch.nan)), dim=1)
    longer[:, : mask.shape[1]][~mask] = torch.inf
    marks = torch.nn.functional.pad(mask, (0, extra))
    tags = torch.nn.functional.pad(labels, (0, extra), value=IGNORE_INDEX)
    close = {"rtol": 0.0, "atol": 1e-6}
    longer.requires_grad_()
    emissions.requires_grad_()
    losses = crf(emissions, labels, mask)
    torch.testing.assert_close(crf(longer, tags, marks), losses, **close)
    (short,) = torch.autograd.grad(losses.sum(), emissions)
    (long,) = torch.autograd.grad(crf(longer, tags, marks).sum(), longer)
    torch.testing.assert_close(long[:, : mask.shape[1]], short, **close)
    assert not long[~marks].any() and not short[~mask].any()
    marginals = torch.nn.functional.pad(crf.marginals(emissions, mask), (0, 0, 0, extra))
    torch.testing.assert_close(crf.marginals(longer, marks), marginals, **close)
    for count in (0, 3):
        one, two = (crf.decode_n_best(*each, count) if count else crf.decode(*each)
                    for each in ((emissions, mask), (longer, marks)))  # fmt: skip
        padded = torch.nn.functional.pad(one[0], (0, extra), value=IGNORE_INDEX)
        assert torch.equal(two[0], padded) and torch.equal(one[1], two[1])


@given(lengths_of_rows, seeds)
@some
def test_a_row_does_not_depend_on_the_others(lengths, seed):
    crf, emissions, labels, mask = make(lengths, 4, seed)
    losses, tags = crf(emissions, labels, mask), crf.decode(emissions, mask)[0]
    for row in range(len(lengths)):
        one = slice(row, row + 1)
        torch.testing.assert_close(crf(emissions[one], labels[one], mask[one]), losses[one], rtol=0, atol=1e-5)
        assert torch.equal(crf.decode(emissions[one], mask[one])[0], tags[one])


def test_an_empty_row_costs_nothing():
    crf, emissions, labels, mask = make([0, 0], 3, seed=1, extra=2)
    emissions.requires_grad_()
    losses = crf(emissions, labels, mask)
    losses.sum().backward()
    assert losses.tolist() == [0, 0]
    for each in (emissions, *crf.parameters()):
        assert not each.grad.any()
    assert crf.decode(emissions, mask)[0].eq(IGNORE_INDEX).all()
    assert crf.decode_n_best(emissions, mask, 2)[1].tolist() == [[0, -math.inf]] * 2
    assert not crf.marginals(emissions, mask).any()


# ---- constraints ----


@pytest.mark.parametrize("scheme", SCHEMES)
@given(lengths_of_rows, seeds)
@settings(deadline=None, max_examples=15)
def test_constraints_are_never_violated(scheme, lengths, seed):
    """The best allowed sequences are those of enumeration, and forbidden ones have no probability."""
    crf, emissions, _, mask = make(lengths, len(SCHEMES[scheme]), seed, scheme)
    emissions = 20 * emissions  # far more than a soft constraint could hold back
    found, scores = crf.decode(emissions, mask)
    best, totals = crf.decode_n_best(emissions, mask, 4)
    marginals = crf.marginals(emissions, mask)
    for row, length in enumerate(lengths):
        paths = [each for each in enumerate_paths(crf, emissions[row], length, -math.inf) if each[0] > -math.inf]
        assert found[row].tolist() == pad_tags(paths[0][1], mask.shape[1])
        assert scores[row].item() == pytest.approx(paths[0][0], rel=1e-5, abs=1e-5)
        kept = best[row, : min(4, len(paths))].tolist()
        assert kept == [pad_tags(path, mask.shape[1]) for _, path in paths[:4]]
        assert totals[row, len(kept) :].isneginf().all()
        log_z, own = log_sum(score for score, _ in paths), torch.zeros(emissions.shape[1:])
        for score, path in paths:
            own[range(length), path] += math.exp(score - log_z)
        torch.testing.assert_close(marginals[row], own, rtol=0, atol=1e-4)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_forbidden_label_costs_much_and_its_gradient_is_finite(scheme):
    crf, emissions, _, mask = make([4, 4], len(SCHEMES[scheme]), 5, scheme)
    emissions.requires_grad_()
    names = SCHEMES[scheme]
    wrong = {"iob1": "O B-A O O", "iob2": "O I-A O O", "bioes": "O I-A O O"}[scheme].split()
    labels = torch.tensor([[names.index(name) for name in wrong], [0, 0, 0, 0]])
    losses = crf(emissions, labels, mask)
    losses.sum().backward()
    assert losses[0] > 250 and losses[1] < 100
    assert all(each.grad.isfinite().all() and each.grad.abs().max() < 10 for each in (emissions, *crf.parameters()))


def test_constraints_are_not_saved_with_the_weights():
    constrained = CRF(5, allowed_transitions(BIO, "iob2"))
    assert set(constrained.state_dict()) == {"transitions", "start", "end"}
    assert not constrained.allowed_transitions.all() and CRF(5).allowed_transitions.all()


# ---- numbers that are hard to sum ----


def test_large_scores_neither_overflow_nor_vanish():
    """The best sequences take an unlikely tag first: sums that forget it find none of them."""
    crf = CRF(3, allowed_transitions(["O", "B-A", "I-A"], "iob2"))
    emissions = torch.tensor([[[120.0, 0, 0], [0, 0, 120]]]).requires_grad_()
    mask, labels = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[1, 2]])
    loss = crf(emissions, labels, mask)
    # O-O and O-B have the score 120 as B-I has.
    assert loss.item() == pytest.approx(math.log(3), abs=1e-5)
    loss.sum().backward()
    expected = torch.tensor([[[2 / 3, -2 / 3, 0], [1 / 3, 1 / 3, -2 / 3]]])
    torch.testing.assert_close(emissions.grad, expected)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_a_long_row_has_finite_losses_and_gradients(scale):
    crf, emissions, labels, mask = make([400, 7], 5, 2, "iob2")
    emissions = (scale * emissions).requires_grad_()
    loss = crf(emissions, labels, mask).sum()
    loss.backward()
    assert loss.isfinite() and emissions.grad.isfinite().all() and crf.transitions.grad.isfinite().all()
    marginals = crf.marginals(emissions, mask)
    torch.testing.assert_close(marginals.sum(2), mask.float(), rtol=0, atol=1e-5)


def test_half_precision_is_summed_in_full():
    crf, emissions, labels, mask = make([30, 12], 5, 2)
    halves = emissions.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        losses = crf(halves, labels, mask)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, crf(halves.float(), labels, mask), rtol=0, atol=1e-4)
    losses.sum().backward()
    assert halves.grad.dtype == torch.bfloat16


def test_ties_go_to_the_lower_tag():
    crf, mask = CRF(4), torch.ones(2, 5, dtype=torch.bool)
    tags, scores = crf.decode(torch.zeros(2, 5, 4), mask)
    assert not tags.any() and not scores.any()
    assert not crf.decode_n_best(torch.zeros(2, 5, 4), mask, 2)[0][:, 0].any()


@pytest.mark.skipif(importlib.util.find_spec("torchcrf") is None, reason="needs pytorch-crf")
def test_it_equals_pytorch_crf():
    import torchcrf

    crf, emissions, labels, mask = make([9, 4, 1], 6, seed=7)
    peer = torchcrf.CRF(6, batch_first=True)
    with torch.no_grad():
        peer.transitions.copy_(crf.transitions)
        peer.start_transitions.copy_(crf.start)
        peer.end_transitions.copy_(crf.end)
    torch.testing.assert_close(crf(emissions, labels, mask), -peer(emissions, labels, mask, reduction="none"))
    tags = crf.decode(emissions, mask)[0]
    assert [row[row >= 0].tolist() for row in tags] == peer.decode(emissions, mask)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_cuda_graph_replays_all_of_it():
    crf, emissions, labels, mask = make([7, 4, 0], 5, 1, "iob2")
    expected = crf(emissions, labels, mask), crf.decode(emissions, mask)[0], crf.marginals(emissions, mask)
    moved = [each.cuda() for each in (emissions, labels, mask)]
    crf.cuda()

    def compute():
        losses = crf(*moved)
        losses.sum().backward()
        return losses, crf.decode(moved[0], moved[2])[0], crf.marginals(moved[0], moved[2]), \
            crf.decode_n_best(moved[0], moved[2], 3)[0]  # fmt: skip

    moved[0].requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        compute()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = compute()
    for other in (2 * emissions.detach(), emissions.detach()):
        with torch.no_grad():
            moved[0].copy_(other)
        graph.replay()
    torch.testing.assert_close(found[0].cpu(), expected[0], rtol=0, atol=1e-4)
    assert torch.equal(found[1].cpu(), expected[1]) and torch.equal(found[3][:, 0].cpu(), expected[1])
    torch.testing.assert_close(found[2].cpu(), expected[2], rtol=0, atol=1e-5)
