"""A shift that you can name
=========================

"What if half of the people were women?" `radius_of` translates this into a radius, and
`worst_mix` shows the worst mix of a ball of that size for a model.

**Lesson**: a radius is a number of a model, a changed mix is something people can discuss. The
ball of the same size holds all changes of this size, and the worst one is worse.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import log_losses, radius_of, worst_mix
from drolearn.datasets import load_adult

adult = load_adult()
train, test = ~adult.is_test, adult.is_test
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
model.fit(adult.X[train], adult.y[train])
losses = log_losses(model.predict_proba(adult.X[test]), adult.y[test], model.classes_)
sex = adult.sex[test]

shares = np.linspace(0.05, 0.95, 19)
radii = [radius_of(sex, {"Female": share})["chi2"] for share in shares]
means = {name: losses[sex == name].mean() for name in ("Female", "Male")}
named = [share * means["Female"] + (1 - share) * means["Male"] for share in shares]
worst = [worst_mix(losses, sex, rho).value for rho in radii]

figure, ax = plt.subplots(layout="constrained")
ax.plot(shares, worst, color="black", label="worst mix in a ball of the same size")
ax.plot(shares, named, color="tab:blue", label="this share of women")
ax.axvline((sex == "Female").mean(), color="grey", linestyle="dotted", label="share in the data")
ax.set(xlabel="share of women", ylabel="mean log loss of test rows")
ax.legend(frameon=False)
plt.show()
