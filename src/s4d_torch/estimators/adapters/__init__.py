"""The estimators as aeon's and sktime's own: ``aeon_estimators``, ``sktime_estimators``.

Each needs its extra, and nothing of it is imported here.
"""
