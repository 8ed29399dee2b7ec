"""A small English by grammar: each word with its part of speech and phrases, and a translation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

#: Words that may be a noun or a verb; what they are, only the sentence says.
BOTH = ("watch", "fish", "plant", "ship", "book", "hammer", "saw", "duck")
NOUNS = ("dog", "cat", "child", "farmer", "garden", "river", "letter", "apple", *BOTH)
VERBS = ("see", "like", "find", "carry", "follow", "paint", "visit", "hear", *BOTH)
ADJECTIVES = ("small", "old", "green", "happy", "quiet", "heavy")
ADVERBS = ("often", "never", "slowly", "today")
PREPOSITIONS = ("near", "behind", "with", "under")
DETERMINERS = ("the", "a", "every")
PRONOUNS = ("they", "we", "you")
LENGTH = 20


@dataclass
class Sentence:
    """A sentence and what the grammar knows of it.

    Attributes:
        words: The words.
        tags: The part of speech of each.
        phrases: For each word the names of the phrases that it is in: NP, VP, PP, S (a relative clause).
        rules: Which optional rules were used anywhere: relative, question.
        other: The translation: words of another language in another order, verbs last.
    """

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    phrases: list[frozenset[str]] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)
    other: list[str] = field(default_factory=list)


def sentences(count: int, seed: int) -> list[Sentence]:
    """Return random sentences of at most ``LENGTH`` words, each once."""
    rng = np.random.default_rng(seed)
    out: dict[tuple[str, ...], Sentence] = {}
    while len(out) < count:
        sentence = Sentence()
        sentence.other = _sentence(rng, sentence)
        if len(sentence.words) <= LENGTH and len(sentence.other) < LENGTH:
            out[tuple(sentence.words)] = sentence
    return list(out.values())


def _sentence(rng: np.random.Generator, to: Sentence) -> list[str]:
    """S -> NP VP, or a question; return the translation."""
    question = rng.random() < 0.25
    if question:
        to.rules.add("question")
        _word(to, "do", "auxiliary", ())
    subject = _noun_phrase(rng, to, (), 0)
    return [*(["ka"] if question else []), *subject, *_verb_phrase(rng, to, (), 0)]


def _noun_phrase(rng: np.random.Generator, to: Sentence, within: tuple[str, ...], depth: int) -> list[str]:
    """NP -> pronoun | determiner adjective* noun (PP) (clause); the other language has nouns first."""
    within = (*within, "NP")
    if rng.random() < 0.2:
        return [_word(to, _one(rng, PRONOUNS), "pronoun", within)]
    out = [_word(to, _one(rng, DETERMINERS), "determiner", within)]
    adjectives = [_word(to, _one(rng, ADJECTIVES), "adjective", within) for _ in range(rng.binomial(2, 0.3))]
    out += [_word(to, _one(rng, NOUNS), "noun", within), *adjectives]
    if depth < 2 and rng.random() < 0.25:
        phrase = (*within, "PP")
        preposition = _word(to, _one(rng, PREPOSITIONS), "preposition", phrase)
        out = [*_noun_phrase(rng, to, phrase, depth + 1), preposition, *out]
    if depth < 1 and rng.random() < 0.25:
        to.rules.add("relative")
        clause = (*within, "S")
        _word(to, "that", "complementizer", clause)
        out = [*_verb_phrase(rng, to, clause, depth + 1), "no", *out]
    return out


def _verb_phrase(rng: np.random.Generator, to: Sentence, within: tuple[str, ...], depth: int) -> list[str]:
    """VP -> verb NP (adverb), with the object before the verb in the other language."""
    within = (*within, "VP")
    adverb = [_word(to, _one(rng, ADVERBS), "adverb", within)] if rng.random() < 0.4 else []
    verb = _word(to, _one(rng, VERBS), "verb", within)
    return [*adverb, *_noun_phrase(rng, to, within, depth + 1), verb]


def _word(to: Sentence, word: str, tag: str, within: tuple[str, ...]) -> str:
    """Add a word; return its translation, which differs where it is a noun and where it is a verb."""
    to.words.append(word)
    to.tags.append(tag)
    to.phrases.append(frozenset(within))
    return f"{word[::-1]}{'u' if tag == 'verb' else 'o' if tag == 'noun' else ''}"


def _one(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[rng.integers(len(words))]
