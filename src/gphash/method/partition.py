"""Row blocks: which rows are trained on, in which blocks, and how raw rows become blocks, again if some are lost.

Rows are read where the executor keeps them. Only the representatives come here.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gphash.arrays import Floats, Indices, Signs
from gphash.data.blocks import Piece, Table
from gphash.execution import clustering
from gphash.execution.local import Executor, row_blocks
from gphash.execution.spill import Spill
from gphash.method import hashing, inference, scaling, triangular
from gphash.method import prior as priors
from gphash.method.prior import Prior
from gphash.method.scaling import Scaling
from gphash.method.selection import Start
from gphash.method.state import Latent, Problem, RowBlock, State
from gphash.supervision.similarity import Signatures, Supervision

ANSWERED = 20_000  # rows, about, that teach the read-out


class Partition(NamedTuple):
    """Which rows are trained on, and in which blocks."""

    order: Indices  # in random order: the first ones are a sample
    n_apart: int  # the first ones, representatives, are in blocks of their own at the beginning, in that order
    n_central: int  # rows that are sampled one after another: the representatives, or all rows of a pair list
    blocks: list[Indices]  # row numbers; rows that are not apart follow each other as in the table
    n_central_blocks: int  # blocks that hold the central rows

    @property
    def asked(self) -> list[int]:
        """Blocks whose answers teach the read-out: the representatives', and others from all over the table."""
        n, sizes = self.n_central_blocks, [len(rows) for rows in self.blocks]
        n_more = -(-max(ANSWERED - sum(sizes[:n]), 0) // max(sizes[-1:] + sizes[n : n + 1]))
        others = np.linspace(n, len(sizes) - 1, min(n_more, len(sizes) - n)).round().astype(int)
        return [*range(n), *others.tolist()]


def read(table: Table, rows: Indices, executor: Executor) -> Floats:
    """Some rows, here, in the order given."""
    if not len(rows):
        return np.empty((0, table.n_features), np.float32)
    order = np.argsort(rows)
    pieces = executor.hold([table.select(rows[order[part]]) for part in row_blocks(len(rows), clustering.BLOCK)])
    parts = list(executor.collect(lambda piece: piece.read(), pieces))
    return np.concatenate(parts)[np.argsort(order)]


class RowSource(NamedTuple):
    """Makes row blocks from raw rows: all of them at first, and later those that were lost."""

    table: Table
    supervision: Supervision
    executor: Executor
    partition: Partition
    central: Sequence[Piece]  # raw rows that stand apart, in blocks
    scaling: Scaling
    prior: Prior
    answers: Signs | None = None  # of all rows of the table to fixed questions, [n, q]; None if codes are sampled
    solver: str = "shared"  # with conjugate gradients, blocks hold plain values of the kernel in place of Phi

    def problem(self, table: Floats, seed: int, spill: Spill | None) -> Problem:
        """All row blocks, with everything that stays the same; Phi is written to the spill file, if there is one."""
        blocks, n_central = self.partition.blocks, self.partition.n_central_blocks
        central = self.supervision.among(np.concatenate(blocks[:n_central]))
        return Problem(self._rows(range(len(blocks)), spill), n_central, central, table, seed)

    def mended(self, problem: Problem) -> Problem:
        """The same with row blocks made again that were lost."""
        lost = self.executor.lost(problem.rows)
        return problem._replace(rows=_renewed(problem.rows, lost, self._rows(lost, None))) if lost else problem

    def first_state(self, problem: Problem, start: Start | None) -> State:
        """State before the first sweep: from answers, else the start's own codes for its sample and predicted bits."""
        blocks = self.partition.blocks
        if self.answers is not None:
            fixed = [self.answers[rows] for rows in blocks]
            if self.solver == "shared":  # fewer inducing inputs go first
                return inference.init_fixed(problem, fixed, self.prior.power, self.executor)
            return inference.init(problem, fixed, self.executor)._replace(frozen=True)
        assert start is not None
        function = start.function
        pieces = self._pieces(range(len(blocks)))
        predictions = self.executor.map(lambda piece: hashing.predict(function, piece.read()), pieces)
        number = np.full(self.table.n_rows, -1)  # of every row, in the sample
        number[self.partition.order[: len(start.signs)]] = np.arange(len(start.signs))
        places = [np.flatnonzero(number[rows] >= 0) for rows in blocks]
        own = [start.signs[number[rows[some]]] for rows, some in zip(blocks, places, strict=True)]

        def signs(prediction: tuple[Floats, Floats], some: Indices, known: Signs) -> Signs:
            bits = np.where(prediction[0] >= 0, 1, -1).astype(np.int8)
            bits[some] = known
            return bits

        first = self.executor.map(signs, predictions, places, own)
        return inference.init_from_predictions(problem, first, predictions, self.executor)

    def recovered(
        self, problem: Problem, state: State, start: Start | None, codes: Callable[[int], Signs | None] | None
    ) -> tuple[Problem, State]:
        """Problem and state with all that was lost made again: blocks from raw rows, sites from the posterior."""
        n_blocks, executor = len(self.partition.blocks), self.executor
        lost = executor.lost(state.latents) if len(state.latents) else list(range(n_blocks))
        problem = self.mended(problem)
        if not lost:
            return problem, state
        if state.factor is None:
            return problem, self.first_state(problem, start)
        mean, factor = state.mean, triangular.light(state.factor)
        blocks, answers = self.partition.blocks, self.answers
        known = [None if answers is None else answers[blocks[place]] for place in lost]

        def recover(block: RowBlock, fixed: Signs | None) -> tuple[Latent, tuple[Floats]]:
            kept = fixed if fixed is not None or codes is None else codes(block.number)
            signs = None if kept is None or len(kept) != len(block.residual) else kept
            return inference.recover(block, signs, mean, factor), (np.array(float(signs is None)),)

        made, (unknown,) = executor.map_and_sum(recover, [problem.rows[place] for place in lost], known)
        latents = _renewed(state.latents or [None] * n_blocks, lost, made)
        state = state._replace(latents=latents, finished=False, finishing=0, calm=False)
        if unknown:
            # Codes that were only predicted have to be sampled, so that all codes begin to move again.
            state = state._replace(frozen=False, quiet=0, steady=0, flips=np.inf)
        if unknown and codes is not None:
            found = f"{int(unknown)} of {len(lost)} blocks have no codes beside the checkpoint"
            warnings.warn(f"{found}; their codes are drawn again.", RuntimeWarning, stacklevel=2)
        return problem, state

    def codes(self, latents: Sequence[Latent]) -> Signs:
        """Codes of all rows of the table, here, int8 [n, m]; 0 for rows that are not trained on."""
        found = np.concatenate(list(self.executor.collect(lambda latent: latent.signs, latents)))
        signs = np.zeros((self.table.n_rows, found.shape[1]), dtype=np.int8)
        signs[np.concatenate(self.partition.blocks)] = found
        return signs

    def _pieces(self, numbers: Sequence[int]) -> Sequence[Piece]:
        """Raw rows of some blocks, each where it is to stay."""
        apart, blocks = self.central, self.partition.blocks
        return self.executor.hold(
            [apart[number] if number < len(apart) else self.table.select(blocks[number]) for number in numbers]
        )

    def _rows(self, numbers: Sequence[int], spill: Spill | None) -> Sequence[RowBlock]:
        """Features and supervision of some blocks."""
        supervision, scaled, prior, n_inducing = self.supervision, self.scaling, self.prior, len(self.prior.Z)
        whitened = self.solver != "conjugate"
        blocks = [self.partition.blocks[number] for number in numbers]
        offsets = np.cumsum([0, *(len(rows) * n_inducing * 4 for rows in blocks[:-1])]).tolist()
        known = [supervision[rows] if isinstance(supervision, Signatures) else None for rows in blocks]

        def make(number: int, piece: Piece, signatures: Signatures | None, offset: int) -> RowBlock:
            X = scaling.apply(scaled, piece.read())
            Phi, residual = priors.features(prior, X) if whitened else (priors.plain(prior, X), np.zeros(len(X)))
            if spill is not None:
                spill.write(offset, Phi)
                Phi = np.empty((0, n_inducing), np.float32)
            weights = None if signatures is None else signatures.row_weights
            return RowBlock(number, Phi, residual, signatures, weights)

        def look(block: RowBlock, offset: int) -> RowBlock:
            assert spill is not None
            return block._replace(Phi=spill.read(offset, (len(block.residual), n_inducing), np.float32))

        made = self.executor.map(make, list(numbers), self._pieces(numbers), known, offsets)
        return made if spill is None else self.executor.map(look, made, offsets)


def _renewed(blocks: Sequence[Any], places: Sequence[int], made: Sequence[Any]) -> list[Any]:
    """A list with some of its elements replaced."""
    renewed = list(blocks)
    for place, block in zip(places, made, strict=True):
        renewed[place] = block
    return renewed
