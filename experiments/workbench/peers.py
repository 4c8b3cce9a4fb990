"""Other libraries for the same tasks, for comparison; all are optional.

    pip install 'privopt[peers]'

A library that is missing, or that does not import, is reported and left out. Libraries are imported by name
when they are needed: never with the package, and never by the type checker.
"""

from __future__ import annotations

import importlib
import math
import platform
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.privacy.poisson import poisson_multiplier

Features = NDArray[np.float64]
Labels = NDArray[np.int64]
Weights = tuple[NDArray[np.float64], float]  # coefficients and intercept

# Common first choices for DP-SGD. The learning rate 2 is one over the smoothness for rows of norm at most 1
# and an intercept; eight times that was worse on Covertype and, at epsilon 0.1, on Adult.
BATCH, EPOCHS, LEARNING_RATE, CLIP = 1024, 10, 2.0, 1.0


@cache
def module(name: str) -> Any:
    """Import a module; None if it is not installed or does not import."""
    try:
        return importlib.import_module(name)
    except Exception:  # a broken installation can raise anything
        return None


def versions(*names: str) -> dict[str, str]:
    """Return the installed versions of some distributions and of Python."""
    found = {"Python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
        else:
            if module(name.replace("-", "_").replace("scikit_learn", "sklearn")) is None:
                found[name] += ", does not import here"
    return found


def diffprivlib_fit(X: Features, y: Labels, norm: float, epsilon: float, delta: float, seed: int) -> Weights:
    """Fit diffprivlib's logistic regression with its defaults, for rows of norm at most ``norm``.

    Objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011); pure epsilon, replace-one, ``delta`` is
    not used. The guarantee assumes an exact minimum.
    """
    models = module("diffprivlib.models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about deprecations inside scikit-learn, and convergence
        fitted = models.LogisticRegression(epsilon=epsilon, data_norm=norm, random_state=seed).fit(X, y)
    return np.ravel(fitted.coef_), float(np.ravel(fitted.intercept_)[0])


def opacus_fit(
    X: Features, y: Labels, norm: float, epsilon: float, delta: float, seed: int, *, replace_one: bool
) -> Weights:
    """Fit logistic regression by Opacus's DP-SGD: its per-sample gradients, clipping, noise and accountant.

    Rows are divided by ``norm``, gradients clipped to ``CLIP``, batches Poisson.

    Args:
        replace_one: true: noise for (epsilon, delta) under replace-one, by our accountant; false: under
            add/remove, by Opacus's accountant, which needs less noise.
    """
    torch, opacus = module("torch"), module("opacus")
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # batches are too small for several threads
    n, d = X.shape
    q = min(1.0, BATCH / n)
    steps = math.ceil(EPOCHS / q)
    multiplier = _multiplier(epsilon, delta, q, steps, (d + 1) * steps, replace_one)
    features = torch.from_numpy((X / norm).astype(np.float32))
    labels = torch.from_numpy(y.astype(np.float32))
    layer = torch.nn.Linear(d, 1)
    torch.nn.init.zeros_(layer.weight), torch.nn.init.zeros_(layer.bias)
    model = opacus.GradSampleModule(layer)
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        noise_multiplier=multiplier,
        max_grad_norm=CLIP,
        expected_batch_size=BATCH,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hooks
        for _ in range(steps):
            batch = torch.nonzero(torch.rand(n) < q).ravel()
            optimizer.zero_grad()
            margin = labels[batch] * model(features[batch]).ravel()
            torch.nn.functional.softplus(-margin).mean().backward()
            optimizer.step()
    return layer.weight.detach().numpy().ravel() / norm, float(layer.bias.detach())


@lru_cache(maxsize=64)
def _multiplier(
    epsilon: float, delta: float, q: float, steps: int, coordinates: int, replace_one: bool
) -> float:
    if replace_one:
        return poisson_multiplier(epsilon, delta, q=q, steps=steps, coordinates=coordinates)
    utils = module("opacus.accountants.utils")
    with warnings.catch_warnings():
        # The warning concerns the looser bound from which the search starts.
        warnings.filterwarnings("ignore", message="Optimal order is the largest alpha", category=UserWarning)
        found = utils.get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=q, steps=steps, accountant="prv"
        )
    return float(found)


def torch_gradient(X: NDArray[Any], signs: NDArray[Any]) -> Callable[[NDArray[Any]], Any]:
    """Return the mean gradient of the logistic loss as a function, by reverse-mode differentiation."""
    torch = module("torch")
    features, labels = torch.from_numpy(X), torch.from_numpy(signs)

    def gradient(w: NDArray[Any]) -> Any:
        point = torch.from_numpy(w).requires_grad_()
        torch.nn.functional.softplus(-labels * (features @ point)).mean().backward()
        return point.grad.numpy()

    return gradient


def vmap_gradient(X: NDArray[Any], signs: NDArray[Any], clip: float) -> Callable[[NDArray[Any]], Any]:
    """Return the mean of clipped per-sample gradients as a function, by torch.func: DP-GD without noise."""
    torch = module("torch")
    features, labels = torch.from_numpy(X), torch.from_numpy(signs)

    def loss(point: Any, row: Any, label: Any) -> Any:
        return torch.nn.functional.softplus(-label * (row @ point))

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def gradient(w: NDArray[Any]) -> Any:
        each = per_sample(torch.from_numpy(w), features, labels)
        norms = each.norm(dim=1, keepdim=True)
        return (each * (clip / norms.clamp(min=clip))).mean(dim=0).numpy()

    return gradient


def opacus_step(X: NDArray[Any], signs: NDArray[Any], clip: float) -> Callable[[], object]:
    """Return a function that makes one step of DP-SGD on the whole batch, by Opacus."""
    torch, opacus = module("torch"), module("opacus")
    features, labels = torch.from_numpy(X), torch.from_numpy(signs)
    layer = torch.nn.Linear(X.shape[1], 1, bias=False, dtype=features.dtype)
    model = opacus.GradSampleModule(layer)
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=1.0,
        max_grad_norm=clip,
        expected_batch_size=len(signs),
    )

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about hooks
            optimizer.zero_grad()
            torch.nn.functional.softplus(-labels * model(features).ravel()).mean().backward()
            optimizer.step()

    return step
