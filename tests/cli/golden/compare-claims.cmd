"$berth" compare --claims --columns id,verdict
