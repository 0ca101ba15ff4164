"""What a person should know before trusting a conversion, and what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from nmpconv.calib.engine import FloatEngine
from nmpconv.data.samples import Samples
from nmpconv.fit import Score, heads
from nmpconv.ir import Graph, Preprocess
from nmpconv.metrics import mean_db

FEW_IMAGES, ENOUGH_IMAGES = 32, 100
POOR_DB, POOR_AGREEMENT = 15.0, 95.0  # below which a result is poor
JUDGED = 16  # images, at least, that tell whether a classifier is fed right
# A classifier is unsure of an image where its best class has less than this, or than so many times that of a guess.
UNSURE, CHANCE = 0.25, 1.2
# Of the images in one class, where there are more than two or three: at most 0.31 for the zoo's classifiers, and 0.56
# up for three of the five that are fed pixels without --mean and --std.
SAME, MANY = 0.5, 5
IMAGENET = (1000, 1001)  # classes: so many scores are a classifier's, without further evidence


def quality(
    bits: str, widths: str, images: int, score: Score | None, fitted_db: Mapping[str, float]
) -> tuple[str, ...]:
    """Where SQNR or agreement are poor, and where images are few. bits, widths: of `options.Options`. score: on images
    that nothing was fitted to; where there were none for that, fitted_db counts: dB of the heads on the others."""
    found = []
    if 0 < images < FEW_IMAGES:
        found.append(f"{images} calibration images are few: ranges and biases may fit no others; about 100 are right")
    wider = {"strict": "without --strict", "default": "--precise, --bits a16w8"}.get(widths, "--bits a16w8")
    tries = [wider] if bits == "8" else ["--bits 16"] if bits == "a16w8" else []
    tries += ["more images"] if images < ENOUGH_IMAGES else []
    advised = f"try {', '.join([*tries, 'other preprocessing'])}"
    if score is not None:
        if score.db < POOR_DB or (score.agreement is not None and score.agreement < POOR_AGREEMENT):
            found.append(f"poor on images that nothing was fitted to; {advised}")
    elif images and fitted_db and (db := mean_db(fitted_db.values())) < POOR_DB:
        found.append(f"poor, even on images that it was fitted to: {db:.1f} dB; {advised}")
    return tuple(found)


def normalization(
    graph: Graph, samples: Mapping[str, Samples], images: Sequence[Mapping[str, np.ndarray]]
) -> tuple[str, ...]:
    """Asks for --mean and --std, the commonest mistake, where pixels are fed as they are to a classifier and its
    results are odd. graph: the float graph, which ``images`` are fed to."""
    plain = Preprocess()
    looks = [one.preprocess for one in samples.values()]
    if len(looks) != 1 or looks[0] is None or (looks[0].mean, looks[0].std) != (plain.mean, plain.std):
        return ()
    names = heads(graph)
    labelled = bool(graph.labels) or any(one.labels is not None for one in samples.values())
    scores = graph[names[0]].shape
    ends_in_softmax = names[0] not in graph.outputs
    if len(names) != 1 or sum(dim > 1 for dim in scores) != 1:
        return ()
    if not (labelled or ends_in_softmax or max(scores) in IMAGENET):
        return ()
    engine = FloatEngine(graph, names)
    found = odd([engine.run(image)[names[0]] for image in images])
    return (f"{found}; did you forget --mean and --std?",) if found else ()


def odd(logits: Sequence[np.ndarray]) -> str:
    """What is odd about a classifier's results, or ''. logits: before the Softmax, of each image."""
    if len(logits) < JUDGED:
        return ""
    rows = [row.ravel().astype(np.float64) for row in logits]
    sure = median(1 / np.exp(row - row.max()).sum() for row in rows)
    if sure < max(UNSURE, CHANCE / rows[0].size):
        return f"the float model is unsure of its images: the best class has {100 * sure:.0f} % (median)"
    [(_, most)] = Counter(int(row.argmax()) for row in rows).most_common(1)
    if rows[0].size >= MANY and most > SAME * len(rows):
        return f"the float model puts {most} of {len(rows)} images into one class"
    return ""
