"""The function ``inspect``: read the arguments, run the plan over the models, return the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InputError, require
from ..scores import Score, Scorer
from .alignment.symbols import SymbolPositions
from .arguments import check_index, check_options, check_whole
from .behaviours import Records
from .hypotheses import Labels, as_hypotheses
from .models import as_checkpoints
from .observations import Observations, confounders_of, groups_of, types_of
from .plan import Plan
from .reading import Behavior, tcav
from .reading.data import Inputs
from .results.against import Against
from .running.cache import Cache
from .running.checkpoints import Options, rows_of

if TYPE_CHECKING:
    from .results.table import Inspection


def inspect(
    models: Any,
    hypotheses: Any,
    scores: Any,
    data: Any,
    units: Any = None,
    *,
    load: Callable[[Any], Any] | None = None,
    model: Any = None,
    twin: bool = False,
    inputs: Inputs | None = None,
    groups: Any = None,
    types: Any = None,
    symbols: Any = None,
    behavior: str = "activation",
    output: Any = None,
    given: str | Sequence[str] = (),
    null: int = 0,
    splits: int = 1,
    against: str | float | None = None,
    seed: int = 0,
    eps: float | None = None,
    top: int | None = None,
    batch: int = 256,
    engine: int | str | None = None,
    cache: str | Path | None = None,
    cache_outputs: bool = False,
    store: str | Path | None = None,
    run: str | None = None,
    progress: bool | None = None,
) -> Inspection:
    """Score how well each unit of a model responds to each hypothesis.

    Models run in evaluation mode without gradients and are restored afterwards. Each model runs over the data
    once, for all hypotheses, scores and units. If labels have positions, maps are resized to their grid,
    which must cover the record: its height and width, or a whole multiple or fraction of both. If there is
    one label per record, behaviors are averaged over the positions. Scores of a whole layer that need no
    labels read its output as it is, one row per record.

    The options are about, in this order: the models (``load`` to ``twin``); the data (``inputs`` to
    ``symbols``); what is read of units (``behavior``, ``output``); statistics (``given`` to ``seed``); how
    many records are read (``eps`` to ``batch``); where models run and where results go (``engine`` to
    ``progress``).

    Args:
        models: A model; a list of checkpoints, whose epochs are 0, 1, 2 …; or a dict by epoch or by name.
            Each may be a function without arguments that loads one, so that only one is in memory; a path,
            with ``load`` or ``model``; or a state dict, with ``model``. A path may be a pattern
            (``"runs/epoch_*.pt"``); the epochs are those in the names of files where they tell them.
        hypotheses: Functions of one record that return a label for each symbol (pixel, position) or one
            label, or a dict of labels by name; or labels with an entry per record, as an array, a list or
            a pandas Series or DataFrame. One, a list, or a dict by name. NaN, or None among strings, means
            not annotated. ``hypothesis`` names one, declares the kind of its labels, and makes functions of
            batches; ``intus.hypotheses`` has ready-made ones. May be empty for scores of whole layers.
        scores: Names of scores (``"iou"``, ``"correlation"``, ``"linear_f1"``, see ``intus.scores.names()``),
            scores, functions or scikit-learn estimators; one or a list. ``"tcav"`` asks whether the class
            ``output`` depends on a concept (labels 0 and 1 per record) in a layer, over the records that the
            model predicts as that class.
        data: A tensor, an array, or a sequence of records; a DataLoader or Dataset of torch, of whose items
            ``(x, y)`` the first is the record, in the dataset's order (labels are not used: pass them as a
            hypothesis); or a DataFrame of pandas, whose rows are records.
        units: A pair ``(layer, units)``, a layer, or a list of these. A layer is an address or pattern
            (``"features.*"``), which may name its units (``"conv2[0,3]"``), or a number that counts the
            layers with parameters from 1. Units are ``"*"`` for all, a number, a slice, a list, a mask, or
            text (``"0,4:8"``). ``"act[:@1]"`` names the axis of the units where it is not known. A third
            place, ``(layer, units, ["ink"])``, names the hypotheses that these units are scored for. Default:
            all units of all layers with parameters, for all hypotheses.
        load: A function that takes a path and returns the model. Default: None.
        model: The model whose weights are in the paths or state dicts, or a function that makes it. It is
            copied, not changed. Default: None.
        twin: Whether to score a newly initialized twin as well, as ``Net (new)``: what the architecture
            knows without training. Its rows have no ``q``. Default: False.
        inputs: Turns a list of records into the model's input: a tensor, a tuple of positional arguments, or
            a mapping of keyword arguments. Default: records are stacked.
        groups: What records belong to, such as a document, an episode or a subject: an id per record, or a
            function of a record. Records of a group are held out together, and intervals and p-values count
            groups, not records. Default: each record is a group of its own.
        types: What each symbol is an instance of, such as its word: an array or a function of a record, as a
            hypothesis. ``linear_selectivity`` needs it, whose control task has a random label for each type.
            Default: None.
        symbols: Which symbol, such as a word or character, each position of a layer belongs to: a function of
            a record that returns ``word_ids()`` or ``offset_mapping`` of a tokenizer, a list for each record,
            or ``intus.hypotheses.Symbols``, which also says how several positions of a symbol become one
            behavior. Default: None, positions are symbols.
        behavior: What is read of units. ``"activation"`` (default) is their value. ``"gradient"`` is the
            gradient of ``output`` with respect to it, ``"activation*gradient"`` their product. By captum
            (``intus[attribution]``), of modules that run once: ``"smoothgrad"`` (25 noisy copies of each
            record), ``"guided_backprop"`` (of models whose ReLUs are modules), ``"gradcam"`` (the part of
            each unit in the map of Grad-CAM) and ``"guided_gradcam"`` (that times the guided gradient of the
            image).
        output: The number of each record that gradients are of: the index of a class of the model's output
            (records, classes), a class for each record, or a function of the model's output that returns one
            number per record. Default: the model's output, if it is one number per record.
        given: The names of hypotheses that are confounders. ``correlation`` is then partial: that of what
            these leave of a unit and of a hypothesis, with the note ``given …``. Default: none.
        null: The number of permutations of the hypotheses between groups, such as 200. The p-value of a unit
            then holds for all units of a hypothesis together, because each permutation is judged by its
            strongest unit (Westfall and Young 1993). Judge it by .05 divided by the number of hypotheses;
            ``q`` would correct for the units once more, and p is at least 1 / (``null`` + 1). Default: 0,
            p-values of single pairs.
        splits: The number of seeded splits into training and held-out records. With several, classifiers'
            values are means over them. Default: 1.
        against: The address of a layer, or the epoch or name of a model. Classifiers of every other layer or
            model are compared with it in further rows, whose score is ``linear_f1 above NAME``: the
            difference on the same held-out items, with the interval and p-value of a paired test. Default:
            None.
        seed: The seed that decides which rows are sampled, held out and shuffled. Default: 0.
        eps: Stop reading when 99 % of the 95 % intervals have at most this half-width, in units of the score
            (standard deviations for ``mean_difference``). Records are then read in a seeded random order,
            whole groups together, and the note of each row says how many were read. Default: None, read all.
        top: Stop reading when the ``top`` strongest units of 95 % of the hypotheses are known. With ``eps``,
            both must hold. Default: None, read all.
        batch: The number of records that are run at a time. Default: 256.
        engine: Where the models run: a number of processes of this machine, ``"ray"`` for Ray's workers on
            it, or ``"ray://host:port"`` for a cluster. The results are those of one process. Default: this
            process.
        cache: A folder for results. The same question of the same model and data, also in another session, is
            then answered from there. Labels are kept too, unless it cannot be known what a hypothesis
            computes (it reads files, the clock or random numbers, or changes what it reads). Default: None.
        cache_outputs: Whether to keep the outputs of layers in the cache too, as safetensors, so that further
            hypotheses need no pass of the model. They may take much space. Default: False.
        store: Also write the rows and the graph of the model to this database, a path or URL. If a call ends
            early, the same call with the same ``run`` reads the models that were finished from there.
            Default: no.
        run: The name of the run in the database and the table. Default: with ``store`` the current time.
            Under the name of a training run both sets of scores are kept: those of ``inspect`` for whole
            layers have the kind ``"inspect"``.
        progress: Whether to show a bar by tqdm on standard error. Default: None, if it is a terminal or a
            notebook and the pass takes more than two seconds.

    Returns:
        A DataFrame with one row per model, unit, hypothesis and score: ``model``, ``address``, ``unit`` (-1
        for the layer as a whole), ``target`` (the hypothesis), ``score``, ``value``, ``low`` and ``high`` (a
        95 % interval over records), ``baseline`` (what the score reaches without knowledge; for most scores,
        with the labels of other records), ``p`` (two-sided, of no dependence; NaN for a score without a
        test), ``q`` (the false discovery rate if all rows with at most this p count as found; Benjamini and
        Hochberg 1995, over the whole table), ``n`` (the number of rows), ``note``, ``run`` and ``epoch``.

    Raises:
        InputError: If an argument has an impossible value, or labels and layers do not fit.
        AddressError: If a layer or unit does not exist, or the axis of its units is not known.
        CaptureError: If a layer did not run, or its output cannot be read.
        MissingExtraError: If pandas, or SQLAlchemy for ``store``, is not installed.
        Exception: Whatever a model or hypothesis raised.

    Example:
        >>> net = torch.nn.Linear(2, 3)
        >>> data = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]])
        >>> table = inspect(net, {"first": lambda record: record[0]}, "correlation", data)
        >>> table[["address", "unit", "target", "score"]].values.tolist()
        [['', 0, 'first', 'correlation'], ['', 1, 'first', 'correlation'], ['', 2, 'first', 'correlation']]

    References:
        Sellam, Lin, Huang, Yang, Vondrick and Wu (2019), "DeepBase: Deep Inspection of Neural Networks",
        SIGMOD: ``inspect(models, hypotheses, scores, data, units)``.
    """
    require("pandas", extra="inspect", why="to return a DataFrame")
    from .results.table import Asked, as_table

    check_whole(1, batch=batch, splits=splits)
    check_whole(0, seed=seed)
    check_options(eps, top, cache, cache_outputs, null, given)
    check_index(data, hypotheses, groups=groups, types=types, symbols=symbols, output=output)
    records = Records(data, inputs)
    checkpoints = as_checkpoints(models, load=load, model=model, twin=twin, seed=seed)
    aligned = None if symbols is None else SymbolPositions(symbols, len(records))
    folder = Cache(cache, cache_outputs)
    labels = Labels(as_hypotheses(hypotheses, len(records)), aligned, folder)
    if given:
        first = np.arange(min(batch, len(records)))
        labels.of(first, partial(records.block, first))  # functions that return several now have names
    confounders = confounders_of(given, labels.names)
    observed = Observations(groups_of(groups, records), types_of(types, len(records), folder), confounders)
    others, with_tcav = tcav.requested(scores)
    requested = Scorer(others, seed=seed, null=null).scores if others or not with_tcav else ()
    if not requested and not with_tcav:
        raise InputError("scores is empty. Name a score, such as 'correlation'.")
    _check(requested, labels, given)
    slope = Behavior.of("gradient", output, len(records)) if with_tcav else None
    what = Behavior.of(behavior, None if slope and behavior == "activation" else output, len(records), seed)
    plan = Plan(
        records,
        labels,
        observed,
        requested,
        units,
        batch,
        seed,
        splits,
        null,
        eps,
        top,
        behavior=what,
        tcav=slope,
    )
    if with_tcav and (not labels.hypotheses or given):
        raise InputError("tcav needs a hypothesis with a label 0 or 1 per record, and takes no given=.")
    run = run if run is not None else time.strftime("inspect %Y-%m-%d %H:%M:%S") if store else ""
    compared = Against.of(against, checkpoints, requested)
    options = Options(folder, store, run, engine, compared, progress)
    return as_table(Asked(checkpoints, plan, rows_of(checkpoints, plan, options), store, run), run)


def _check(scores: Sequence[Score], labels: Labels, given: str | Sequence[str]) -> None:
    """Raise InputError if a score needs a hypothesis and there is none, or does not take confounders."""
    needy = [score.name for score in scores if not score.reads_layers]
    if not labels.hypotheses and needy:
        raise InputError(f"There are no hypotheses, but the score {needy[0]!r} needs one.")
    others = [score.name for score in scores if score.name != "correlation"]
    if given and others:
        raise InputError(
            f"given={given!r} holds confounders fixed for the score 'correlation' only, got {others[0]!r}. "
            "Ask for the other scores in a call without given."
        )
