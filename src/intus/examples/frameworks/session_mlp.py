"""A multilayer perceptron in a Session of TensorFlow 1."""

import numpy as np
import tensorflow.compat.v1 as tf

from intus import flush, probe, register_targets
from intus.examples.frameworks.problem import batches, start


def train(problem: str, host: str, port: int, epochs: int, run: str) -> list[float]:
    """Train in a Session, and return the loss of each step."""
    tf.disable_eager_execution()
    data = np.load(problem)
    images, labels = data["images"], data["labels"]
    x, y = tf.placeholder(tf.float32, [None, 64], name="x"), tf.placeholder(tf.int64, [None], name="y")
    w1, b1, w2, b2 = (tf.Variable(data[name], name=name) for name in ("w1", "b1", "w2", "b2"))
    with tf.name_scope("hidden"):
        hidden = tf.nn.relu(tf.matmul(x, w1) + b1)
    with tf.name_scope("head"):
        logits = tf.matmul(hidden, w2) + b2
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)

    register_targets(host, port, name="digit", targets=labels, model_pattern="^session$")
    losses, places = [], ["hidden/Relu", "head/add"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with probe(session, host, port, name="session", run=run, which=places, block=True) as watch:
            for watch.epoch in range(1, epochs + 1):
                for items in batches(watch.epoch, len(images)):
                    watch.items = items
                    value, _ = session.run([loss, step], {x: images[items], y: labels[items]})
                    losses.append(float(value))
                print(f"session, epoch {watch.epoch}: loss {losses[-1]:.3f}", flush=True)
    flush(host, port)
    return losses


if __name__ == "__main__":
    start(train)
