"""What happens while a model runs: interpose -> recorder -> operations and module calls -> Recording, Values.

Everything here works on live tensors, or decides while they live. What is made of it afterwards lies around
this folder and is not needed in it.
"""
