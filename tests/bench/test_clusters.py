"""The formulas of bench/clusters/ by hand, and the simulation beside one that goes token by token."""

import random
from dataclasses import replace

import pytest
from folders import ROOT

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "bench" / "clusters")
    import cluster_memory
    import cluster_model
    import cluster_tables as tables
    from cluster_generation import answer_lengths, simulate
    from cluster_model import Controller, Cost, Rates, Shape, Work

# a layer: 4·6 queries, 4·3 keys and 4·3 values, 6·4 output, three of 4·5: 132 weights; a head of 4·10
SMALL = Shape("small", hidden=4, intermediate=5, layers=2, heads=2, kv_heads=1, head_dim=3, vocabulary=10)
RATES = Rates(
    flops=1000.0, memory_rate=100.0, memory=1e4, link=50.0, gloo=20.0, disk=40.0, node=2, chunk=0.0, number=4
)
WORK = Work(rows=4, prompts=2, prompt=3, sampled=20, micro=8)


def test_weights_of_the_published_sizes():
    assert (SMALL.body, SMALL.head, SMALL.weights) == (2 * 132, 40, 2 * 132 + 80)
    assert replace(SMALL, tied=True).weights == 2 * 132 + 40
    # inputs + outputs: 10 + 7 + 7 + 10 + 9 + 9 + 9
    assert SMALL.adapter(2) == 2 * 2 * 61
    assert SMALL.kv_bytes() == 2 * 2 * 3 * 2  # keys and values, layers, numbers, bytes
    eight, thirty_two = tables.SHAPES
    assert eight.weights == pytest.approx(8.19e9, rel=1e-3)  # of the model card: 8.2 B and 32.8 B
    assert thirty_two.weights == pytest.approx(32.76e9, rel=1e-3)


def test_operations_of_an_update():
    assert (WORK.computed, WORK.recorded, WORK.keys) == (26, 32, 4.0)
    products, attention = 2 * (264 * 26 + 40 * 20), 4 * 2 * 6 * 4 * 26
    assert cluster_model.forward_flops(SMALL, 26, 20, 4) == products + attention
    full = cluster_model.training_flops(SMALL, WORK, lora=False)
    assert full == 3 * products + 3 * attention
    assert cluster_model.training_flops(SMALL, WORK, lora=True) == full - products
    assert cluster_model.training_flops(SMALL, WORK, lora=True, recompute=True) == full + attention


def test_ranks_wait_for_products_or_for_weights():
    # two gathers of 344 weights and a sum of their gradients, in 4 bytes, half of it from the other rank
    assert cluster_model.sharded_bytes(344, 344, 2, 4) == 4 * 3 * 344 / 2
    assert cluster_model.sharded_bytes(344, 344, 2, 2) == (2 * 2 + 4) * 344 / 2
    assert cluster_model.sharded_bytes(344, 344, 1, 4) == 0
    flops = cluster_model.training_flops(SMALL, WORK, lora=False) / 2
    exchange = 2 * 4 * 3 * 344 / 2 / 50  # two micro-batches of 13 tokens a rank
    assert exchange > flops / 1000
    assert cluster_model.training_seconds(SMALL, WORK, RATES, 2, SMALL.weights) == exchange
    serial = replace(RATES, overlap=False, train_share=0.5)
    both = exchange + flops / 500
    assert cluster_model.training_seconds(SMALL, WORK, serial, 2, SMALL.weights) == pytest.approx(both)
    alone = cluster_model.training_seconds(SMALL, WORK, RATES, 1, SMALL.weights)
    assert alone == pytest.approx(2 * flops / 1000)


def test_old_logprobs_gather_once_a_pass():
    exchange = 2 * 4 * 344 / 2 / 50
    assert cluster_model.scoring_seconds(SMALL, WORK, RATES, 2) == exchange


def test_a_publication_is_gathered_twice_and_written_by_each_rank_of_a_node():
    rates = replace(RATES, publication=0.01, proof=3.0)
    seconds = cluster_model.publication_seconds(SMALL, 100, rates, ranks=4)
    assert seconds == pytest.approx(2 * 400 * 3 / 4 / 50 + 2 * 400 / 40 + 1.0 + 3.0)
    scored = cluster_model.publication_seconds(SMALL, 100, replace(rates, host=2.0), ranks=4) - seconds
    assert scored == pytest.approx(344 * (40 + 27 + 12))  # a row, three prompts and their turns
    digest = replace(RATES, chunk=2.0, disk=float("inf"))
    assert cluster_model.publication_seconds(SMALL, 1 << 19, digest, ranks=1) == 4.0
    assert cluster_model.update_seconds(SMALL, 100, RATES, 4) == 7 * 400 / 4 / 100


def test_ranks_exchange_tensors_one_by_one():
    rates = replace(RATES, tensor_published=1.0, tensor_updated=2.0, tensor_digested=3.0)
    assert (SMALL.tensors(344), SMALL.tensors(40)) == (2 * 9, 2 * 14)
    for ranks, each in ((1, 0), (2, 18)):
        more = [
            function(SMALL, 344, rates, ranks) - function(SMALL, 344, RATES, ranks)
            for function in (cluster_model.publication_seconds, cluster_model.update_seconds)
        ]
        assert more == pytest.approx([each, 2 * each])
        assert cluster_model.digest_seconds(SMALL, 344, rates, ranks) == 3 * each
    large = replace(SMALL, layers=40_000)  # the doctor digests 8 million weights of an update's slice
    digested = cluster_model.digest_seconds(large, 16_000_000, rates, 2)
    assert digested == 3 * large.tensors(16_000_000) / 2


def test_each_rank_has_the_rows_of_all():
    controller = Controller({"record": Cost(7, 1, 0.5)}, Cost(6, 10, 2), Cost(1, 0.25, 0), Cost(0, 0, 1))
    assert cluster_model.controller_seconds(WORK, controller) == {"record": 7 + 4 + 16}
    assert cluster_model.exchange_seconds(WORK, controller, RATES, 8) == (6 + 40 + 64) / 20 + 2
    assert cluster_model.exchange_seconds(WORK, controller, RATES, 1) == 0


def test_a_sampled_token_is_bound_by_reads_or_by_operations():
    read = (2 * 304 + 24 * 10) / 100
    assert cluster_model.token_seconds(SMALL, replace(RATES, number=2), 1, 10) == read
    many = (2 * 304 * 100 + 4 * 2 * 6 * 10) / 1000
    assert cluster_model.token_seconds(SMALL, RATES, 100, 10) == many
    assert cluster_model.token_seconds(SMALL, replace(RATES, decode_share=0.5), 100, 10) == 2 * many
    prefill = (2 * (264 * 6 + 40 * 2) + 4 * 2 * 6 * 1.5 * 6) / 1000
    assert cluster_model.prefill_seconds(SMALL, RATES, 2, 3) == prefill


def test_memory_of_a_rank():
    parts = cluster_memory.trainer_memory(SMALL, trained=344, ranks=4, ahead=1, number=4)
    assert parts["shards"] == 16 * 344 / 4
    assert parts["copy that scores, ahead"] == 0  # in main memory, as the whole weights
    assert parts["gathered layers"] == 4 * (80 + 2 * 132)
    assert parts["gathered gradients"] == 4 * (80 + 132)
    lora = cluster_memory.trainer_memory(SMALL, trained=40, ranks=1, ahead=0, number=2)
    assert lora["shards"] == 2 * 344 + 16 * 40
    assert sum(lora.values()) == lora["shards"] + cluster_memory.LOGIT_BYTES
    masters = cluster_memory.trainer_memory(SMALL, trained=344, ranks=1, ahead=1, number=2)
    assert masters["shards"] == 16 * 344
    assert masters["copy that scores, ahead"] == 0
    alone = cluster_memory.trainer_memory(SMALL, trained=40, ranks=1, ahead=1, number=2)
    assert alone["copy that scores, ahead"] == 4 * 40
    assert cluster_memory.host_memory(SMALL, ranks=8, number=2) == 8 * 2 * 344


def test_offloaded_shards_are_in_main_memory_and_layers_are_gathered():
    """As docs/scale.md, "Choosing ranks, engines and memory", says; also with one rank."""
    held = cluster_memory.trainer_memory(SMALL, trained=344, ranks=4, ahead=0, number=2)
    parts = cluster_memory.trainer_memory(SMALL, trained=344, ranks=4, ahead=0, number=2, offload=True)
    assert (parts.pop("shards"), held.pop("shards")) == (0, 16 * 344 / 4)
    assert parts == held
    alone = cluster_memory.trainer_memory(SMALL, trained=40, ranks=1, ahead=0, number=2, offload=True)
    assert alone["gathered layers"] == held["gathered layers"]
    shards = cluster_memory.shard_bytes(SMALL, trained=40, ranks=1, number=2)
    assert shards == 2 * 344 + 16 * 40
    assert cluster_memory.host_memory(SMALL, 1, 2, shards) == 2 * 344 + shards
    started = cluster_memory.start_memory(SMALL, 344, ranks=4, number=2)
    offloaded = cluster_memory.start_memory(SMALL, 344, ranks=4, number=2, offload=True)
    assert started - offloaded == 4 * 344 / 4


def test_memory_at_the_start():
    assert cluster_memory.start_memory(SMALL, 40, ranks=1, number=2) == 2 * 344
    gathered = 80 + 2 * 132  # embedding, head and two layers
    assert cluster_memory.start_memory(SMALL, 40, ranks=4, number=2) == 2 * 344 / 4 + 2 * gathered
    assert cluster_memory.start_memory(SMALL, 344, ranks=2, number=2) == 4 * 344 / 2 + 4 * gathered
    assert cluster_memory.start_memory(SMALL, 344, ranks=1, number=2) == 4 * 344 + 4 * gathered


def test_tokens_of_a_cache():
    assert cluster_memory.cache_tokens(SMALL, RATES, 0.5, workspace=312) == (5000 - 4 * 344 - 312) // 48
    assert cluster_memory.cache_tokens(SMALL, replace(RATES, memory=0.0)) == 0


def test_saved_bytes_of_a_token():
    # norms 2·4·4, products' inputs 2·2·4, gate 4·2·5; queries, output, keys and values 2·2·3·(2 + 1)
    layer = 32 + 16 + 40 + 36
    assert cluster_memory.activation_bytes(SMALL) == 2 * layer
    assert cluster_memory.recomputed_bytes(SMALL) == 2 * 16 + 3 * layer


def token_by_token(lengths, prompt, group, places, cache, step, prefill):
    """The same engine, one token at a time."""
    waiting, running, seconds = list(lengths), [], 0.0
    while waiting or running:
        joined = 0
        while waiting and len(running) < places:
            reserved = sum(length for length, _ in running) + prompt / group * (len(running) + 1)
            if running and reserved + waiting[0] > cache:
                break
            running.append((waiting.pop(0), 0))
            joined += 1
        seconds += prefill(joined / group)
        cached = sum(done for _, done in running) + prompt / group * len(running)
        seconds += step(len(running), cached + len(running) / 2)
        running = [(length, done + 1) for length, done in running if done + 1 < length]
    return seconds


@pytest.mark.parametrize("seed", range(20))
def test_the_simulation_is_that_of_single_tokens(seed):
    numbers = random.Random(seed)
    lengths = [numbers.randint(1, 12) for _ in range(numbers.randint(1, 9) * 2)]
    given = {"prompt": numbers.randint(0, 4), "group": 2, "places": numbers.randint(1, 6)}
    given |= {"cache": numbers.randint(12, 60)}
    given |= {
        "step": lambda running, cached: 1 + running / 8 + cached / 64,
        "prefill": lambda count: 3 * count,
    }
    assert simulate(lengths, **given).seconds == pytest.approx(token_by_token(lengths, **given))


def test_the_longest_answer_is_the_tail():
    constant = {"step": lambda running, cached: 1.0, "prefill": lambda count: 0.0}
    found = simulate([2] * 7 + [10], prompt=0, group=1, places=8, cache=100, **constant)
    assert found == (10.0, 8.0)


def test_lengths_have_their_mean_and_their_limit():
    lengths = answer_lengths(20_000, mean=100, longest=10_000, spread=0.8, key="test")
    assert sum(lengths) / 20_000 == pytest.approx(100, rel=0.03)
    assert max(answer_lengths(2000, 100, 150, 0.8, "test")) == 150
    assert lengths[:50] == answer_lengths(50, 100, 10_000, 0.8, "test")


def test_ahead_hides_the_shorter_of_sampling_and_training():
    plan = tables.Plan(tables.SHAPES[0], 8, lora=True)
    now, ahead = (tables.predict(replace(plan, ahead=k), tables.H100, tables.CONTROLLER) for k in (0, 1))
    assert now.step == pytest.approx(sum(now.seconds.values()))
    beside = sum(ahead.seconds[name] for name in ("train", "record", "doctor"))
    assert ahead.seconds["train"] > now.seconds["train"], "old log-probabilities are computed again"
    assert ahead.step == pytest.approx(sum(ahead.seconds.values()) - min(beside, ahead.seconds["generate"]))
    assert now.fits(tables.H100)


def test_32b_with_lora_fits_gpus_of_80_gb_and_with_all_weights_more_of_them():
    for lora, gpus, fits in ((True, 8, True), (False, 8, False), (False, 64, True)):
        plan = tables.Plan(tables.SHAPES[1], gpus, lora)
        assert tables.predict(plan, tables.H100, tables.CONTROLLER).fits(tables.H100) == fits
