"""What messages must say to somebody who has never seen this project and must act tonight."""

PARTS = {
    ("NUM-2", "microbatches_averaged_alike"): [
        "strategy microbatches_averaged_alike, framework jax, model mlp, mesh data=8, target cpu",
        "gradients of step 1: 8 of 8 leaves failed; the first in model order is dense_0/kernel",
        r"dense_0/kernel differs from truth: .* \[error [\d.]+, allowed [\d.e-]+, margin [\d.e+]+, relative error \d",
        r"and 5 more; the worst of all is dense_\d/\w+, margin ",
    ],
    ("NUM-2", "gradient_rolled_by_a_row"): [
        r"dense_1/kernel differs from truth: of its \d+ equal parts in dimension 0 \d+ have changed places: part 0 ",
    ],
    ("NUM-4", "device_left_out"): [
        "  - in the loss of step 1, of the 8 equal parts in dimension 0 of x and y, count: ",
        "count: 0 to 6 1.14 times, 7 not at all$",
    ],
    ("NUM-2", "last_rows_dropped"): [
        "in the loss of step 1, of the 8 equal parts of each of 8 shards in dimension 0 of x and y, count: ",
        "6 to 7 not at all$",
    ],
    ("NUM-4", "leaf_of_one_device"): [
        r"  - in what step 1 leaves of \S*out, of the 8 equal parts in dimension 0 of x and y, count: ",
        "count: 0 8 times, 1 to 7 not at all$",
    ],
    ("NUM-4", "labels_moved_by_a_row"): [
        "  - the losses are those of one device with x moved by -1 in dimension 0, against the rest of the batch$",
    ],
    ("NUM-2", "gathered_in_reverse"): [
        "  - the losses are those of one device with the shards of hidden and out in reverse order in dimension 0$",
    ],
    ("NUM-3", "rate_times_devices"): [
        "what the step adds is 8 times what it adds in truth: its rate, or a factor of gradients"
    ],
    ("CKP-1", "saved_through_one_device"): [
        r"dense_0\S*kernel\S*: expected a device to hold float32\[784, 16\] while save runs, saw "
        r"float32\[784, 128\] on device 0, all of it",
        "  - a device held what is split: give save the sharded arrays as they are",
    ],
    ("COM-11", "reduced_in_groups_of_four"): [
        r"saw 4 \(.*; as much is reduced over data:\(2\)4, groups of its devices, each of which has a sum of its own",
    ],
    ("NUM-12", "initial_digits_differ"): [
        "Jit ``init`` on one device too",
        r"dense_0/kernel differs in bits between one device and the mesh: 100,352 of 100,352 elements, the first at ",
    ],
    ("NUM-11", "forward_with_decay"): [r"  - of the two only loss\(state, batch\) differs from truth$"],
    ("NUM-11", "loss_of_the_next_state"): ["  - of the two only train_step differs from truth$"],
    ("NUM-13", "wrong_from_step_four"): [
        "  - 3 of 7 runs differ, and first in: loss of step 5, 24 steps; optimizer state of step 1, 50 steps later; ",
        r"  - loss of step 5, 24 steps: .*\n  - optimizer state of step 1, 50 steps later: ",
    ],
    ("NUM-9", "carries_and_drops_alike"): ["where each example moves to the next device, saw "],
    ("NUM-6", "drifting_replicas"): [
        r"copies on several devices: \d+ of \d+ leaves failed; the first in model order is \S*dense_0\S*kernel",
        r"differs in bits between device \d and device \d: [\d,]+ of 100,352 elements, the first at .* and [\d.e-]+$",
    ],
    ("COM-2", "reduced_in_the_loop"): [
        "step: all-reduce over data: expected 933,932 bytes, saw 4,669,660, 5 times as many",
        "written as all-reduce; phase ",
        "budget: all-reduce of gradients over data: 933,928 bytes; all-reduce of metrics over data: 4 bytes",
    ],
    ("COM-2", "experts_reduced_twice"): [
        "gradients reduced over expert: expected 70,440 bytes, saw 140,880, 2 times as many",
        "theory, from shapes and layouts alone: once per step",
        "budget: all-reduce of gradients over expert: 70,440 bytes; all-reduce of gradients over expert: 70,440 bytes",
    ],
    ("COM-8", "schedule_leaves_out"): [
        r"step: collective-permute over stage: expected 21 executions, saw 22; one per tick",
        "budget: collective-permute of activations over stage: 720,896 bytes",
    ],
    ("COM-9", "reduced_in_the_loop"): [
        "gradients reduced in a step: expected 933,928 bytes, saw 4,669,656, 5 times as many",
        "1 times what healthy_data_parallel-jax-mlp@data=8 reduces; budget: all-reduce of gradients over data: 933,928",
    ],
    ("COM-10", "whole_batch_everywhere"): [
        r"step: all-gather over data: expected 0 bytes, saw [1-9][\d,]+ \(written as all-gather",
        "budget: no line for all-gather over data",
    ],
    ("SHD-1", "inert_annotation"): [
        r"- dense_0/kernel \(784, 128\), after init: expected P\S*\(None, 'data'\), is P\S*\(\) \(replicated\); ",
        "fullest device: expected 50,176 bytes, saw 401,408, 8 times as many",
    ],
    ("SHD-3", "inert_annotation"): [
        r"dense_0/kernel \(784, 128\), after training: expected P.*, is P.*; 8 of 8 devices hold another part: ",
        r"on position 0 expected \(\(0, 784\), \(0, 16\)\) of shape \(784, 16\) in 50,176 bytes, saw ",
    ],
    ("MEM-1", "inert_annotation"): [
        r"state after init: expected 237,136 bytes on the fullest device, saw [\d,]+",
        "theory: each leaf's bytes, divided by the axes of its declared spec",
        "furthest off is dense_0/kernel: expected 50,176 bytes, saw 401,408, 8 times as many",
    ],
    ("MEM-2", "inert_annotation"): [
        r"aliased from the step's input to its output: expected [\d,]+ bytes, saw [\d,]+",
        "theory: every byte of the state",
    ],
    ("CMP-1", "inert_annotation"): [r"step 2: expected no tracing and no compilation, saw .* \(\d+ events\)"],
    ("ACC-1", "microbatches_averaged_alike"): [
        "gradients of step 1: 8 of 8 leaves failed; the first in model order is dense_0/kernel",
        r"differs from healthy_\S+@data=8: .*\[error [\d.e-]+, allowed [\d.e-]+, margin ",
    ],
    ("MIX-1", "masters_in_bf16"): [
        "parameters after step 1: 1 of 4 leaves failed; the first in model order is dense_1/kernel",
        "- parameters/dense_0/kernel: expected digits that bfloat16 cannot hold, saw none",
    ],
    ("MSK-1", "microbatches_averaged_alike"): [
        "8 of 8 leaves failed; the first in model order is dense_0/kernel",
        "differs from truth: ",
    ],
    ("PIP-1", "schedule_leaves_out"): [
        "bubble: expected 3/11, saw 1/4: 21 of 4 × 21 slots are idle; theory: S=4, V=1, M=8"
    ],
    ("ERR-1", "whole_batch_everywhere"): ["expected an error that names 63 and 8, saw none: it was accepted"],
}
"""Of each kind of clause one message, and what it must say, as regular expressions."""
