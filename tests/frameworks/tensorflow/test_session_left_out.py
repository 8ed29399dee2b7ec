"""Runs of a Session that are skipped in a row are counted, though few of them are reported."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from poor_probe import poor

import intus

tf1 = tf.compat.v1
ROWS = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


class Training:
    """A training in a Session whose probe skips all passes.

    Attributes:
        reported: What is reported of them: epoch, mode and ids of rows.
    """

    def __init__(self, session, x, loss, step):
        self.session, self.x, self.loss, self.step = session, x, loss, step
        self.reported = []

    def observe(self, watch):
        self.reported = poor(watch)

    def train(self):
        return self.session.run([self.loss, self.step], {self.x: ROWS})[0]

    def evaluate(self):
        return self.session.run(self.loss, {self.x: ROWS})


@pytest.fixture
def training():
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        weights = tf1.Variable(tf.ones([4, 3]), name="w")
        loss = tf.reduce_mean(tf.nn.relu(tf.matmul(x, weights)) ** 2)
        step = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
        with tf1.Session(graph=graph) as session:
            session.run(tf1.global_variables_initializer())
            yield Training(session, x, loss, step)


def test_skipped_runs_are_counted_at_any_time(training):
    calls, losses = 0, []
    with intus.probe(training.session, "127.0.0.1", 9) as watch:
        training.observe(watch)
        for epoch in range(3):
            watch.epoch = epoch
            for number in range(80):
                losses.append(training.train())
                calls += 1
                if number % 20 == 7:
                    training.evaluate()
                    training.evaluate()
                    calls += 2
                if number % 7 == 3:
                    assert (watch.status()["passes"], watch.step) == (calls, calls)
        watch.epoch = 3
        status = watch.status()
    assert (status["passes"], status["skipped"]) == (calls, calls)
    assert [mode for _, mode, _ in training.reported].count("eval") == 24
    trained = [epoch for epoch, mode, _ in training.reported if mode == "train"]
    assert set(trained) == {0, 1, 2}
    assert len(trained) < 240 / 3
    assert losses[-1] < losses[0]


def test_other_fetches_and_ids_are_reported(training):
    with intus.probe(training.session, "127.0.0.1", 9) as watch:
        training.observe(watch)
        for _ in range(20):
            training.train()
        assert len(training.reported) < 20
        before = len(training.reported)
        watch.items = np.arange(8)
        training.train()
        assert training.reported[before:] == [(0, "train", list(range(8)))]
        before = len(training.reported)
        training.session.run([training.step], {training.x: ROWS})
        assert len(training.reported) == before + 1
        assert watch.status()["passes"] == 22


def test_removed_while_runs_are_left_out(training):
    with intus.probe(training.session, "127.0.0.1", 9) as watch:
        training.observe(watch)
        for _ in range(10):
            training.train()
    for _ in range(100):
        training.train()
    assert watch.status()["passes"] == 10
    with intus.probe(training.session, "127.0.0.1", 9, run="second") as again:
        training.train()
    assert again.status()["passes"] == 1
