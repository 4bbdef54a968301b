#!/usr/bin/env bash
# gpus.csv and shapes.csv of the user add to the embedded facts or override them.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
facts=$BERTH_HOME/data
mkdir -p "$facts"
printf 'name,gpu,gpus\nnew,NVIDIA Z900,4\nold,RTX 4090,2\n' >"$tmp/nodes.csv"

a_gpu_nobody_knew_can_be_planned() {
    exits 0 "$berth" offers --offers "$tmp/nodes.csv" --json
    jq -e '.offers[0].problem | startswith("unknown GPU")' "$tmp/out"
    cat >"$facts/gpus.csv" <<END
id,aliases,memory_gb_sold,memory_mib_driver,bf16_tflops,memory_gb_per_s
z900,Z900;Z-900,200,195000,3000,9000
rtx4090,RTX 4090,48,48000,165,1008
END
    exits 0 "$berth" offers --offers "$tmp/nodes.csv" --sort none --json
    jq -e '.offers[0] | .gpu == "z900" and .problem == null and .gpu_memory_bytes == 195000*1048576' "$tmp/out"
    jq -e '.offers[1] | .gpu == "rtx4090" and .gpu_memory_bytes == 48000*1048576' "$tmp/out"
    rm "$facts/gpus.csv"
}

a_shape_of_ones_own_joins_the_sample() {
    cat >"$facts/shapes.csv" <<END
provider,instance,gpu,gpus,fabric,inter_gbps,usd_per_hour,price_date
mine,big.8x,h100-sxm,8,ib,3200,10.50,2026-11-01
aws,p5.48xlarge,h100-sxm,8,efa,3200,40,2026-11-01
END
    exits 0 "$berth" offers -q --json
    jq -e '[.offers[] | select(.provider == "mine")] | length == 1 and .[0].price_usd_per_hour == 10.5' "$tmp/out"
    jq -e '[.offers[] | select(.id == "p5.48xlarge")] | length == 1 and .[0].price_usd_per_hour == 40' "$tmp/out"
    rm "$facts/shapes.csv"
}

mistakes_are_named() {
    printf 'id,bf16_tflops\nz900,fast\n' >"$facts/gpus.csv"
    exits 2 "$berth" offers
    one_sentence
    says "gpus.csv': line 2: 'bf16_tflops': 'fast' is not a number" "$tmp/err"
    printf 'id,bf16_tflop\nz900,1000\n' >"$facts/gpus.csv"
    exits 2 "$berth" offers
    one_sentence
    says "gpus.csv': there is no column 'bf16_tflop'" "$tmp/err"
    printf 'family\nz900\n' >"$facts/gpus.csv"
    exits 2 "$berth" offers
    says "'id': must not be empty" "$tmp/err"
    printf 'id,link_scope\nz900,far\n' >"$facts/gpus.csv"
    exits 2 "$berth" offers
    says "'link_scope': not a known word" "$tmp/err"
    rm "$facts/gpus.csv"
    printf 'provider,instance,fabric\na,b,string\n' >"$facts/shapes.csv"
    exits 2 "$berth" offers
    one_sentence
    says "shapes.csv': line 2: 'fabric': not a known word" "$tmp/err"
    rm "$facts/shapes.csv"
}

# a calibration file with one entry of these values
calibration() {
    printf '{"schema": "calibration/1", "entries": [{"device": "gpu", "chip": "*", "stack": "*",
        "source": "s", "date": "2026-11-01", "rows": 1, "values": %s}]}' "$1" >"$tmp/mine.json"
}

a_constant_that_there_is_not_is_refused() {
    local plan=("$berth" estimate --model gpt2 --gpu h100 --seq 1024 --calibration "$tmp/mine.json")
    calibration '{"matmul_of_peek": 0.5}'
    exits 2 "${plan[@]}"
    one_sentence
    says "mine.json': calibration entry 1: there is no constant 'matmul_of_peek'; the nearest is" "$tmp/err"
    says "'matmul_of_peak', \`berth help constants\` lists all" "$tmp/err"
    calibration '{"elementwise_of_memory": {"soft_max": 0.5}}'
    exits 2 "${plan[@]}"
    one_sentence
    says "names the operation 'soft_max', which there is not" "$tmp/err"
    mkdir -p "$facts"
    calibration '{"matmul_of_peak": 0.5, "unhiden": 1}'
    mv "$tmp/mine.json" "$facts/calibration.json"
    exits 2 "$berth" estimate --model gpt2 --gpu h100 --seq 1024
    says "calibration.json': calibration entry 1: there is no constant 'unhiden'; the nearest is 'unhidden'" "$tmp/err"
    rm "$facts/calibration.json"
    exits 0 "$berth" help constants
    says "matmul_of_peak" "$tmp/out"
}

t a_gpu_nobody_knew_can_be_planned a_gpu_nobody_knew_can_be_planned
t a_shape_of_ones_own_joins_the_sample a_shape_of_ones_own_joins_the_sample
t mistakes_are_named mistakes_are_named
t a_constant_that_there_is_not_is_refused a_constant_that_there_is_not_is_refused
tap_done
