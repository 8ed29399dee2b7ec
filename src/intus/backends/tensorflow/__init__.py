"""The backends of TensorFlow (Sessions of version 1, modules) and of Keras 3.

Importing this package imports neither framework: Keras also runs on JAX and PyTorch, without TensorFlow.
"""
