"""What P22 prints: ECE before and after a temperature (Tables 1 and 3), and accuracies (Table 2), all in percent.

Numbers are means of five runs, with their standard deviations. The columns of Tables 1 and 3 are SNLI, QQP, SWAG, MNLI,
TwitterPPDB and HellaSWAG, each without and with temperature scaling. Those of Table 2 are the same six sets.
"""

from __future__ import annotations

from vicinal.papers.base import reported

#: The task and its other domain.
OTHER = {"SNLI": "MNLI", "QQP": "TwitterPPDB", "SWAG": "HellaSWAG"}
SETS = (*OTHER, *OTHER.values())

_TABLE_1 = """
BERT | plain | 2.54±0.8 1.14±1.0 2.71±0.5 0.97±0.1 2.49±1.8 0.85±0.4 7.09±2.1 3.61±1.7 8.51±0.6 7.15±0.9 12.62±2.8 12.83±2.1
BERT | plain + LS | 7.12±0.3 8.37±0.5 6.33±0.4 8.16±0.7 10.01±1.0 10.89±1.1 3.74±1.4 4.05±0.9 6.30±0.8 5.78±0.7 5.73±0.6 5.34±0.9
BERT | Mixup | 7.73±1.1 3.18±0.9 9.04±0.8 3.36±1.1 7.08±1.0 2.08±0.6 19.51±2.1 3.56±1.7 11.70±1.6 5.03±1.3 10.93±2.0 4.24±1.6
BERT | Mixup + LS | 7.92±1.0 2.63±0.8 9.65±0.4 2.49±1.3 7.44±0.7 1.15±0.2 18.57±1.2 2.31±1.0 11.16±0.8 4.58±1.1 8.57±1.3 3.95±1.1
BERT | M-Mixup | 3.17±0.8 1.77±0.3 8.55±1.2 6.11±1.1 5.18±0.6 1.09±0.4 12.92±2.6 2.34±1.9 12.10±2.3 7.98±2.6 9.82±1.2 5.12±0.9
BERT | M-Mixup + LS | 3.40±0.4 5.14±0.7 3.49±0.2 3.71±0.7 5.24±0.5 1.26±0.2 16.76±1.3 4.57±0.9 6.29±1.1 6.54±1.7 8.32±0.7 3.64±0.6
BERT | Ours | 1.29±0.4 0.77±0.7 2.05±0.6 1.02±0.6 2.01±0.4 0.81±0.2 2.73±2.5 3.50±0.6 5.69±0.7 3.16±1.2 5.49±1.9 4.11±1.5
BERT | Ours + LS | 1.85±0.3 1.05±1.0 1.70±0.9 0.95±0.1 2.09±0.7 0.79±0.3 2.26±1.0 1.70±0.5 5.37±1.0 3.54±1.1 4.26±0.8 3.28±0.7
RoBERTa | plain | 1.93±0.5 0.84±0.8 2.33±0.1 0.88±0.6 1.76±1.0 0.76±0.7 3.62±3.2 1.46±2.5 9.55±0.6 7.86±0.5 11.93±3.2 11.22±2.9
RoBERTa | plain + LS | 6.38±0.6 8.70±1.0 6.11±0.3 8.69±0.6 8.81±0.3 11.40±0.6 4.50±1.4 5.93±1.9 8.91±0.3 5.31±0.7 2.14±1.4 2.23±1.1
RoBERTa | Mixup | 7.67±0.8 4.51±0.7 3.41±0.5 1.64±0.6 3.60±0.9 1.03±0.9 16.85±1.3 5.65±0.9 11.03±0.9 5.41±0.8 7.02±0.2 3.90±0.6
RoBERTa | Mixup + LS | 6.10±0.7 1.99±0.5 6.56±0.9 2.96±0.5 2.52±0.1 0.85±0.3 10.89±1.1 1.82±0.3 9.01±1.6 3.09±1.1 7.75±1.7 2.41±0.7
RoBERTa | M-Mixup | 7.32±0.8 4.56±0.4 3.54±0.5 5.05±0.6 1.68±1.2 0.96±0.3 19.78±3.1 7.65±1.3 7.18±1.8 8.76±2.1 5.63±2.8 3.43±1.5
RoBERTa | M-Mixup + LS | 3.51±1.0 3.00±0.9 2.82±0.7 3.03±0.6 1.83±1.5 0.94±0.4 8.23±1.6 5.08±1.0 6.17±0.9 6.91±1.1 4.27±0.6 2.88±1.6
RoBERTa | Ours | 1.34±0.7 0.63±0.5 2.47±0.6 1.41±0.2 1.24±0.1 1.03±0.2 1.41±1.9 1.18±1.4 3.94±0.9 1.89±1.2 2.40±1.8 2.08±1.5
RoBERTa | Ours + LS | 1.28±0.6 1.02±0.6 2.18±0.7 0.84±0.4 1.12±0.4 0.81±0.1 1.37±1.7 1.60±1.3 3.96±1.6 2.67±1.8 1.86±0.9 1.70±1.2
"""  # noqa: E501
_TABLE_2 = """
BERT | plain | 90.04±0.3 90.27±0.3 79.40±0.4 73.52±0.3 87.63±0.4 34.48±0.2
BERT | plain + LS | 87.11±0.8 87.51±0.4 74.91±0.3 72.06±1.2 87.82±0.6 36.48±1.8
BERT | Mixup | 88.82±0.2 89.12±0.5 74.98±2.3 69.19±0.8 87.45±0.3 33.22±0.4
BERT | Mixup + LS | 88.74±0.4 89.24±0.2 75.75±0.5 69.37±1.1 87.69±0.6 35.65±1.7
BERT | M-Mixup | 86.40±0.3 89.37±0.6 76.96±0.4 66.61±0.6 86.51±0.8 34.57±1.4
BERT | M-Mixup + LS | 87.50±0.7 87.17±0.6 76.09±0.9 64.88±0.9 86.55±1.1 33.71±0.6
BERT | Ours | 90.01±0.4 90.13±0.2 78.94±0.8 73.48±0.4 88.04±0.7 34.63±0.4
BERT | Ours + LS | 90.14±0.3 90.32±0.2 79.26±0.6 72.36±0.6 87.62±0.9 34.97±0.5
RoBERTa | plain | 91.23±0.3 91.11±0.2 82.45±1.2 78.79±0.2 86.72±0.2 41.68±1.1
RoBERTa | plain + LS | 89.73±0.4 87.64±0.4 79.13±0.4 77.40±0.5 87.48±1.2 40.05±0.9
RoBERTa | Mixup | 90.59±0.4 89.20±1.4 79.91±1.5 75.74±0.7 84.74±0.6 40.92±1.4
RoBERTa | Mixup + LS | 90.44±0.6 87.45±0.7 79.16±0.4 76.44±1.0 87.48±0.4 39.95±1.0
RoBERTa | M-Mixup | 90.30±0.5 89.47±0.7 73.79±0.8 73.69±1.0 86.04±0.7 41.60±0.8
RoBERTa | M-Mixup + LS | 90.97±0.4 88.44±1.0 79.61±0.6 75.55±0.9 86.49±1.5 41.88±1.1
RoBERTa | Ours | 91.61±0.5 89.19±0.4 81.47±0.8 78.01±0.6 87.13±0.8 40.95±1.4
RoBERTa | Ours + LS | 91.24±0.3 89.75±0.6 82.69±0.7 78.86±0.5 87.63±1.0 41.37±1.1
"""
_TABLE_3 = """
BERT | Ours | 1.85 1.05 1.70 0.95 2.09 0.79 2.26 1.70 5.37 3.54 4.26 3.28
BERT | − AUM | 2.74 0.95 4.43 1.39 2.15 1.44 7.74 1.68 9.08 4.17 11.45 2.21
BERT | − Saliency | 2.34 3.16 5.97 4.94 4.19 1.11 9.51 4.14 6.03 6.79 7.91 4.28
BERT | − dissimilar | 0.60 0.76 1.51 1.16 4.33 0.81 4.91 2.52 8.33 4.32 12.60 6.38
BERT | − similar | 3.76 4.94 2.88 1.98 5.58 2.87 8.38 3.07 7.67 5.55 18.91 3.24
RoBERTa | Ours | 1.28 1.08 2.18 0.84 1.12 0.81 1.37 1.60 3.96 2.67 1.86 1.70
RoBERTa | − AUM | 5.18 2.25 3.59 0.79 2.31 1.39 11.29 5.75 8.09 1.78 12.46 3.79
RoBERTa | − Saliency | 2.91 2.63 0.98 1.02 1.41 1.27 4.80 4.54 6.92 4.78 6.82 3.37
RoBERTa | − dissimilar | 2.01 0.93 2.98 1.58 2.52 0.73 6.69 4.77 5.17 4.54 11.39 6.43
RoBERTa | − similar | 2.69 2.33 5.14 3.40 3.10 2.62 2.01 1.84 10.43 8.94 7.87 6.11
"""


def _read(text: str, columns: int) -> dict[tuple[str, str], dict[str, tuple[float, ...]]]:
    """Return the numbers of each set, by network and row."""
    read = {}
    for line in text.strip().splitlines():
        network, row, numbers = line.split(" | ")
        values = [reported(number) for number in numbers.split()]
        read[network, row] = {name: tuple(values[columns * i : columns * (i + 1)]) for i, name in enumerate(SETS)}
    return read


#: ECE before and after a temperature, or accuracy, by network and row, then by set.
ECE, ACCURACY, ABLATIONS = _read(_TABLE_1, 2), _read(_TABLE_2, 1), _read(_TABLE_3, 2)


def four(network: str, data: str, row: str) -> tuple[float, float, float, float]:
    """Return ECE in the domain and out of it, and the accuracy in the domain and out of it."""
    (inside, outside), (here, there) = (
        (of[network, row][data][0], of[network, row][OTHER[data]][0]) for of in (ECE, ACCURACY)
    )
    return inside, outside, here, there


def tables_1_and_2() -> dict[str, dict[str, float]]:
    """Return both tables: a row for each network, task and method."""
    rows = {}
    for data, other in OTHER.items():
        for network, row in ECE:
            found = {}
            for name, domain in ((data, ""), (other, ", other domain")):
                found[f"ECE{domain}"], found[f"ECE after TS{domain}"] = ECE[network, row][name]
                found[f"accuracy{domain}"] = ACCURACY[network, row][name][0]
            rows[f"{network}, {data} → {other}, {row}"] = found
    return rows
