#!/usr/bin/env bash
# Masks and overlays of the first test images by one run of each encoding, for looking at them side by side.
# usage: results/regions/pictures.sh FOLDER OUT [OPTION...]
#   FOLDER   what pets.sh wrote
#   OUT      where a folder of PNG files an encoding goes
#   OPTION   further options of `sape2 predict`, e.g. --root FOLDER for the data set
set -euo pipefail
folder=${1:?usage: pictures.sh FOLDER OUT [OPTION...]}
out=${2:?usage: pictures.sh FOLDER OUT [OPTION...]}
shift 2
for run in "$folder"/runs/*/seed-0; do
  "${SAPE2:-sape2}" predict "$run" oxford-pets:test:0-15 --out "$out/$(basename "$(dirname "$run")")" "$@"
done
