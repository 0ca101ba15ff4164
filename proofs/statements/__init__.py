"""All proofs, in the order in which they are run."""

from proofs.statements import flatbuffers as flatbuffers
from proofs.statements import functions as functions
from proofs.statements import instructions as instructions
from proofs.statements import kernels as kernels
from proofs.statements import overlaps as overlaps
from proofs.statements import plan as plan
from proofs.statements import rounding as rounding
from proofs.statements import sums as sums
