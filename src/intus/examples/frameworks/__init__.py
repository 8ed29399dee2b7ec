"""One network on the same digits, with the same initial weights, in several frameworks."""
