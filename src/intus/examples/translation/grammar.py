"""A parallel corpus by grammar: each word with its part of speech and entity, each sentence with its topic.

The other language has its verbs last, marks nouns and names by what they are, and has a word of its own for
each topic where English has one word for several. So a translator must find out what a word is here: a noun
or a verb, a person or a place, a record of sport or of music.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

TOPICS = ("sport", "music", "trade", "science")
#: The words of each topic alone.
NOUNS = {
    "sport": ("goal", "team", "coach", "race"),
    "music": ("song", "choir", "piano", "concert"),
    "trade": ("price", "market", "invoice", "loan"),
    "science": ("atom", "theory", "sample", "planet"),
}
VERBS = {
    "sport": ("win", "kick", "throw"),
    "music": ("sing", "compose", "hum"),
    "trade": ("buy", "sell", "insure"),
    "science": ("measure", "observe", "prove"),
}
#: Words that every topic has, each with a translation for each topic.
SHARED = ("record", "field", "score", "note")
#: Words that may be a noun or a verb.
BOTH = ("watch", "plan", "study", "test", "show", "call")
ADJECTIVES = ("small", "old", "famous", "quiet", "strange")
ADVERBS = ("often", "never", "slowly", "today")
DETERMINERS = ("the", "a", "every")
#: Names of one kind each, and names that may be any of the three.
NAMES = {
    "person": ("Anna", "Boris", "Clara", "Dmitri"),
    "place": ("Kyoto", "Lima", "Oslo", "Perth"),
    "organization": ("Acme", "Orbis", "Unity", "Vertex"),
}
ANY_NAME = ("Jordan", "Washington", "Victoria", "Ford", "Sydney", "Amazon")
#: What a name is, the word before it says.
BEFORE = {"person": ("with", "for"), "place": ("in", "near"), "organization": ("at", "from")}
MARK = {"person": "a", "place": "e", "organization": "u"}
#: The most words of a sentence, and of its translation with its start; they differ, so that labels of one do
#: not fit the other.
SOURCE, TARGET = 14, 16


@dataclass
class Word:
    """A word of the other language and what it is."""

    text: str
    tag: str
    entity: str


@dataclass
class Sentence:
    """A sentence, what the grammar knows of it, and its translation.

    Attributes:
        topic: Its topic.
        words: The words.
        tags: The part of speech of each.
        entities: The kind of name of each, "none" for other words.
        other: The words of the translation.
    """

    topic: str
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    entities: list[str] = field(default_factory=list)
    other: list[Word] = field(default_factory=list)

    def add(self, text: str, tag: str, translation: str, entity: str = "none") -> Word:
        """Add a word; return its translation."""
        self.words.append(text)
        self.tags.append(tag)
        self.entities.append(entity)
        return Word(translation, tag, entity)


def sentences(count: int, seed: int) -> list[Sentence]:
    """Return different random sentences."""
    rng = np.random.default_rng(seed)
    out: dict[tuple[str, ...], Sentence] = {}
    while len(out) < count:
        sentence = Sentence(TOPICS[rng.integers(len(TOPICS))])
        subject, verb = _noun_phrase(rng, sentence), _verb(rng, sentence)
        sentence.other = [*subject, *_noun_phrase(rng, sentence), *_place(rng, sentence), *verb]
        if len(sentence.words) <= SOURCE and len(sentence.other) < TARGET:
            out[tuple(sentence.words)] = sentence
    return list(out.values())


def _noun_phrase(rng: np.random.Generator, to: Sentence) -> list[Word]:
    """NP -> determiner adjective* noun (preposition name); nouns come first in the other language."""
    determiner = _one(rng, DETERMINERS)
    start = to.add(determiner, "determiner", determiner[::-1])
    adjectives = []
    for _ in range(rng.binomial(2, 0.25)):
        adjective = _one(rng, ADJECTIVES)
        adjectives.append(to.add(adjective, "adjective", adjective[::-1]))
    noun = _one(rng, (*NOUNS[to.topic], *NOUNS[to.topic], *SHARED, *BOTH))
    named = [start, to.add(noun, "noun", f"{_root(noun, to.topic)}o"), *adjectives]
    return [*named, *_place(rng, to)] if rng.random() < 0.3 else named


def _verb(rng: np.random.Generator, to: Sentence) -> list[Word]:
    """V -> adverb? verb."""
    out = []
    if rng.random() < 0.4:
        adverb = _one(rng, ADVERBS)
        out.append(to.add(adverb, "adverb", adverb[::-1]))
    verb = _one(rng, (*VERBS[to.topic], *SHARED, *BOTH))
    return [*out, to.add(verb, "verb", f"{_root(verb, to.topic)}i")]


def _place(rng: np.random.Generator, to: Sentence) -> list[Word]:
    """PP -> preposition name; the preposition follows the name in the other language."""
    entity = _one(rng, tuple(NAMES))
    before = _one(rng, BEFORE[entity])
    preposition = to.add(before, "preposition", before[::-1])
    name = _one(rng, (*NAMES[entity], *ANY_NAME))
    return [to.add(name, "name", f"{name.lower()[::-1]}{MARK[entity]}", entity), preposition]


def _root(word: str, topic: str) -> str:
    return f"{word[::-1]}{topic[:2]}" if word in SHARED else word[::-1]


def _one(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[rng.integers(len(words))]
