"""Needs of models that take turns in one arena, on a microcontroller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from nmpconv.file.memory_map import memory
from nmpconv.file.reader import Model
from nmpconv.runtime import interpreter, targets


def shared_arena(arenas: Iterable[int]) -> int:
    """Bytes of the arena that models of these arenas take turns in: those of the largest."""
    return max(arenas, default=0)


@dataclass(frozen=True)
class Turn:
    """A model as one of several.

    data: the file that `model` was read from. target: of `targets.MICROCONTROLLERS`; None: on whatever machine, as
    headers of bundles say it.
    """

    data: bytes
    model: Model
    target: str | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of its ops."""
        return frozenset(op.kind for op in self.model.ops)

    @cached_property
    def _machines(self) -> Sequence[interpreter.TargetNeeds]:
        names = interpreter.targets() if self.target is None else [self.target]
        return [interpreter.needs_of_target(self.data, name) for name in names]

    @property
    def arena(self) -> int:
        """Bytes of RAM of a run."""
        return targets.most(self.data) if self.target is None else self._machines[0].arena_bytes

    @property
    def scratch(self) -> int:
        """Bytes of the hungriest op, in the arena."""
        return max(max(needs.scratch_bytes, default=0) for needs in self._machines)

    @property
    def states(self) -> int:
        """Bytes of the states, which the next call of the model reads."""
        return sum(self.model.tensors[port.tensor].nbytes for port in self.model.inputs if port.state is not None)

    @property
    def suspended(self) -> int:
        """Bytes that stay while another model runs (nmp_suspended_bytes): the handle and the states."""
        return max(map(self._handle, self._machines)) + self.states

    def _handle(self, needs: interpreter.TargetNeeds) -> int:
        plan = memory(self.model, needs.scratch_bytes)
        return needs.arena_bytes - (needs.activation_bytes if plan is None else plan.with_scratch)

    @property
    def stack(self) -> int:
        """Bytes of the stack at most, on Cortex-M with DSP instructions."""
        return targets.stack(self.data, self.kinds)

    @property
    def flash(self) -> int:
        """Bytes of the file."""
        return len(self.data)


@dataclass(frozen=True)
class Together:
    """Models with one interpreter and one arena. Bytes, as of `Turn`."""

    turns: Sequence[Turn]

    @property
    def target(self) -> str | None:
        return self.turns[0].target

    @property
    def arena(self) -> int:
        return shared_arena(turn.arena for turn in self.turns)

    @property
    def suspended(self) -> int:
        return sum(turn.suspended for turn in self.turns)

    @property
    def apart(self) -> int:
        """Bytes of an arena for each."""
        return sum(turn.arena for turn in self.turns)

    @property
    def stack(self) -> int:
        return max(turn.stack for turn in self.turns)

    @property
    def flash(self) -> int:
        return sum(turn.flash for turn in self.turns)

    @property
    def kinds(self) -> list[str]:
        """Ops of the interpreter, sorted."""
        return sorted(frozenset[str]().union(*(turn.kinds for turn in self.turns)))

    @property
    def interpreter(self) -> tuple[int, int] | None:
        """kB of its flash, least and most of other nets (`targets.INTERPRETER`)."""
        return None if self.target is None else targets.INTERPRETER.get(self.target)
