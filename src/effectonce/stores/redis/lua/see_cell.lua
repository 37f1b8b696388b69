-- A cell as it stands now; false: there is none.
local now, name = clock(ARGV[1]), ARGV[2]
return {struct.pack('<d', now), cell_of(name, now)}
