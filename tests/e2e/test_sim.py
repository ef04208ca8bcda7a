"""`tidepool sim`: options and their errors, the JSON document, equal runs, found devices."""

import gzip
import json
import os
import subprocess

import pytest

import harness

METRICS = {
    "late_fraction", "harvest_fraction", "harvest_vs_hindsight", "idle_bound", "slices_per_device_hour",
    "handovers_per_device_hour", "lost_work_fraction", "goodput_fraction", "effective_training_fraction",
    "job_wait_p50_s", "job_wait_p99_s", "job_completion_mean_s", "ledger_balanced", "events", "wall_s",
}
