"""A stress test of somebody else's model
======================================

Boosted trees and a logistic regression, neither trained by this library. How does their loss grow
if the population shifts?

**Lesson**: the model that is better on average need not be better under shifts, and the curve
says up to which size of a shift the order is certain.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import stress_test
from drolearn.datasets import load_adult

adult = load_adult()
train, test = np.flatnonzero(~adult.is_test)[:6000], np.flatnonzero(adult.is_test)[:6000]
X, y = adult.X[train], adult.y[train]
models = {
    "boosted trees": HistGradientBoostingClassifier(random_state=0).fit(X, y),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, y),
}
report = stress_test(
    models, adult.X[test], adult.y[test], groups={"sex": adult.sex[test]}, random_state=0
)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
report.plot("curve", ax=left)
report.plot("groups", ax=right)
plt.show()

# %%
# The numbers behind the picture:
print(report)
