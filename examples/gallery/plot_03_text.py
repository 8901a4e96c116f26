"""
Texts, and sparse rows
======================

Codes of texts from TF-IDF, a sparse matrix. Nothing is made dense but a few rows at a time. With an encoder in the
ONNX format, embeddings take the place of TF-IDF, and all the rest stays.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from gphash import Collection, GPHasher

# %%
# Complaints are made of words that a department often hears, of words that others hear, and of words that all of them
# hear. Some cannot be told apart.

HEARD = {
    "delivery": "parcel courier late doorstep tracking lost depot van signature address missed driver",
    "quality": "broken scratched cracked faulty loose seam colour faded stain smell cheap wobbly",
    "billing": "invoice charged twice refund card payment voucher overpaid account receipt tax bank",
    "website": "login password page crashed button search basket error slow app reset screen",
}
HEARD = {name: words.split() for name, words in HEARD.items()}
OTHERS = [word for words in HEARD.values() for word in words]
ALL = ["the", "my", "order", "was", "please", "help", "again", "today", "very", "still", "cannot", "i", "have", "it"]


def complain(department, rng):
    return " ".join(rng.permutation([*rng.choice(HEARD[department], 2), *rng.choice(ALL, 5), *rng.choice(OTHERS, 2)]))


rng = np.random.default_rng(0)
departments = rng.choice([*HEARD], 1200)
texts = [complain(department, rng) for department in departments]
print(texts[0], "→", departments[0])

# %%
# The first thousand teach the codes, and go into a collection with their texts. The others are searched for.

vectoriser = TfidfVectorizer().fit(texts[:1000])
rows = vectoriser.transform(texts)
hasher = GPHasher(n_bits=16, n_inducing=200, random_state=0).fit(rows[:1000], departments[:1000])
folder = tempfile.TemporaryDirectory()
items = {"label": departments[:1000].tolist(), "text": texts[:1000]}
complaints = Collection.create(f"{folder.name}/complaints.gphash", hasher, rows[:1000], items)

query = vectoriser.transform(["the van never came and tracking says my parcel is lost"]).toarray()[0]
for hit in complaints.search(query, k=3):
    print(f"{hit.probability:.2f}  {hit.labels[0]:9}  {hit.values['text']}")

# %%
# Where complaints of each department end up: the share of the ten most similar that come from each.

found = complaints.search(rows[1000:].toarray(), k=10)
names = [*HEARD]
table = np.zeros((4, 4))
for department, hits in zip(departments[1000:], found, strict=True):
    for hit in hits:
        table[names.index(department), names.index(hit.labels[0])] += 1
table /= table.sum(axis=1, keepdims=True)

figure, axis = plt.subplots(figsize=(4.6, 3.8), layout="constrained")
axis.imshow(table, cmap="Blues", vmin=0, vmax=1)
for (row, column), share in np.ndenumerate(table):
    axis.text(column, row, f"{share:.2f}", ha="center", va="center", color="white" if share > 0.5 else "black")
axis.set(xticks=range(4), yticks=range(4), xticklabels=names, yticklabels=names)
axis.set(xlabel="department of what is found", ylabel="department of the query")
plt.show()
complaints.close()
folder.cleanup()
