"""Questions asked of units with ``inspect``; ``intus examples NAME`` trains the network, asks and draws."""
