"""Print how many names are let pass and how many ids are found."""

from tests.core.corpus import IDS, NAMES, entries, found_percent

for file in NAMES:
    known = entries(file)
    alarms = [entry.text for entry in known if entry.found]
    print(f"{file.removesuffix('.txt')} {len(known)}, false alarms {len(alarms)}", *alarms)
for file in IDS:
    known = entries(file)
    print(f"{file.removesuffix('.txt')} {len(known)}, found {found_percent(known):.1f} %")
    for of in dict.fromkeys(entry.of for entry in known):
        those = [entry for entry in known if entry.of == of]
        print(
            f"  {of:<24}{len(those):>4}  {found_percent(those):5.1f} %",
            *(e.text for e in those if not e.found),
        )
