"""What rows of published runs call their hardware: devices of the catalog, nodes and networks."""

import re

DEVICES = [("h100 96gb", "h100-sxm-96gb"), ("h100 96 gb", "h100-sxm-96gb"), ("h100 nvl", "h100-nvl"), ("h100", "h100-sxm"),
           ("h800", "h800-sxm"), ("gh200 144", "gh200-144gb"), ("gh200", "gh200-96gb"), ("h200", "h200"), ("h20", "h20"),
           ("gb200", "gb200"), ("gb300", "gb300"), ("b200", "b200"), ("b300", "b300"), ("5090", "rtx-5090"),
           ("4090", "rtx-4090"), ("3090", "rtx-3090"), ("a6000", "rtx-a6000"), ("l40s", "l40s"), ("mi300x", "mi300x"), ("mi250x", "mi250x"),
           ("v100", "v100-sxm")]
# Of these another form is in the catalog, or none: no stand-in.
NOT_IN_CATALOG = re.compile(r"tpu|trainium|gaudi|ascend|910|v100[^,;(]*pcie|gh200 nvl|b200a|mi2\d0(?!x)|a100x|equivalent|cpu\b")

# 40 GB of memory: no end of a larger number, no rate ("40 Gb/s"); "A100-SXM4-40" says it, too.
FORTY_GB = re.compile(r"(?<![\d.])40 ?gi?b?\b(?!/s)|a100(?: sxm\d?| pcie)? 40 ?(?:$|[(,])")


def device_of(hardware):
    """The key of the catalog for what a row calls its hardware."""
    name = re.sub(r"[-_]", " ", hardware.lower())
    if NOT_IN_CATALOG.search(name):
        return None
    if "a800" in name:
        return "a800-sxm"
    if "pcie" in name and "h100" in name:
        return "h100-pcie"
    if "a100" in name:
        form = "pcie" if "pcie" in name else "sxm"
        return f"a100-{form}-40gb" if FORTY_GB.search(name) else "a100-pcie-80gb" if form == "pcie" else "a100-sxm"
    return next((key for part, key in DEVICES if re.search(rf"(?<![a-wyz\d]){part}(?!\d)", name)), None)


RATE = re.compile(r"(\d+(?:\.\d+)?) ?[Gg]([Bb](?:its?)?)(?i:/s|ps)(?i:[a-z0-9 ]* per gpu)")
NETWORKS = re.compile(r"rdma|infiniband|\bib\b|roce|ethernet|network|\bnics?\b|\bcx|connectx|\befa\b|[hnx]dr", re.IGNORECASE)
LINKS_OF_NODES = re.compile(r"nvlink|nvswitch|xgmi|infinity fabric", re.IGNORECASE)


def network_of(hardware):
    """Bytes per second between nodes for each GPU, in GB: GB/s are bytes, Gb/s and Gbit/s bits. None where only links
    inside of a node are said."""
    for clause in re.split(r"[,;+&]| / |\band\b|\bwith\b", hardware):
        start = 0
        for rate in RATE.finditer(clause):
            words = clause[start:rate.end()]
            start = rate.end()
            if NETWORKS.search(words) or not LINKS_OF_NODES.search(words):
                return float(rate[1]) / (1 if rate[2] == "B" else 8)
    return None


def cluster_of(row):
    """Devices of a node and bytes per second between nodes, where the hardware says them."""
    options = {}
    node = re.search(r"\b(\d+) ?(?:gpus?)? ?(?:/|per) ?node", row["hardware"].lower())
    if node:
        options["--per-node"] = int(node[1])
    network = network_of(row["hardware"])
    cards = re.search(r"\b(\d) ?x ?([hnx])dr ?-?(\d{3})?", row["hardware"].lower())  # of a node
    if network is None and cards and node:
        network = int(cards[1]) * {"h": 25, "n": 50, "x": 100}[cards[2]] / int(node[1])
    if network:
        options["--network"] = f"{network:g}GB"
    return options
