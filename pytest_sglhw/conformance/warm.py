"""Imported by the fork server of isolated cells: what each child would otherwise make anew, at half a second each."""

from __future__ import annotations

import torch

from pytest_sglhw.conformance.pools import bank

torch.set_num_threads(1)  # threads do not survive a fork
bank()
