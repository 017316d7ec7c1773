#!/usr/bin/env bash
# What the gates add, on the runs of pets.sh: the same table with open gates as the baseline. Trains nothing.
# usage: results/regions/gates.sh FOLDER OUT
#   FOLDER   what pets.sh wrote
#   OUT      where the reports go
set -euo pipefail
folder=${1:?usage: gates.sh FOLDER OUT}
out=${2:?usage: gates.sh FOLDER OUT}
"${SAPE2:-sape2}" compare --from "$folder/results.json" --baseline 'sape2-rel-k[gates=open]' --out "$out"
